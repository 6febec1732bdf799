package odradek;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;

/**
 * A group member as in tests/clients/members: LISTENER BOOTSTRAP GROUP TOPIC STRATEGY [--instance ID].
 *
 * The strategy is range, or "consumer" if the broker assigns the partitions (KIP-848). The container commits what the
 * listener has processed after each poll, and before it gives partitions up.
 */
@Configuration
@EnableKafka
public class Listener implements ConsumerAwareRebalanceListener {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    private static String[] arguments;

    private static Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.METADATA_MAX_AGE_CONFIG, 2000,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class));
        if (arguments[3].equals("consumer")) {
            settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "consumer");
        } else {
            settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500);
            settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 30000);
            settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG,
                "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        if (arguments.length == 6) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, arguments[5]);
        }
        return settings;
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(settings()));
        factory.getContainerProperties().setConsumerRebalanceListener(this);
        return factory;
    }

    @KafkaListener(topics = "${topic}", groupId = "${group}")
    void process(ConsumerRecord<byte[], byte[]> record) {
        OUT.println("record " + record.partition() + " " + record.offset());
    }

    private static void tell(String word, Collection<TopicPartition> partitions) {
        OUT.println(word + partitions.stream().map(each -> " " + each.partition()).collect(Collectors.joining()));
    }

    @Override
    public void onPartitionsAssigned(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevokedAfterCommit(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
        tell("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Consumer<?, ?> consumer, Collection<TopicPartition> partitions) {
        tell("lost", partitions);
    }

    public static void main(String[] from) {
        arguments = from;
        System.setProperty("group", from[1]);
        System.setProperty("topic", from[2]);
        new AnnotationConfigApplicationContext(Listener.class).registerShutdownHook();
    }
}
