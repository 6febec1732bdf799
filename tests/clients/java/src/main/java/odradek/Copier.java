package odradek;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic to another in transactions, until it is killed:
 * COPIER BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID [PROTOCOL].
 *
 * Each batch is consumed, transformed ("copy of " before the value), produced to the same partition and committed
 * together with its offsets. Prints "committed" after each transaction. PROTOCOL: of the group, classic or consumer.
 */
public final class Copier {
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String source;
    private final String target;

    private Copier(
            String bootstrap, String source, String target, String group, String transactionalId, String protocol) {
        this.source = source;
        this.target = target;
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.instance.id", transactionalId,
            "group.protocol", protocol, "enable.auto.commit", false, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "max.poll.records", 100, "reconnect.backoff.max.ms", 200L));
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", 15000);
        }
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        producer = new KafkaProducer<>(Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", transactionalId, "transaction.timeout.ms", 10_000,
            "linger.ms", 2, "reconnect.backoff.max.ms", 200L),
            new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] args) {
        new Copier(args[0], args[1], args[2], args[3], args[4], args.length > 5 ? args[5] : "classic").run();
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(List.of(source));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            try {
                copy(records);
                System.out.println("committed " + records.count());
            } catch (ProducerFencedException | FencedInstanceIdException | OutOfOrderSequenceException
                    | AuthorizationException fatal) {
                fatal.printStackTrace();
                System.exit(3);
            } catch (KafkaException failure) {
                System.out.println("abort " + failure);
                abort();
            }
        }
    }

    private void copy(ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), null, "copy of " + record.value()));
            after.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException again) {
                System.out.println("commit again " + again);
            }
        }
    }

    /** What was consumed is consumed again from the group's last commit. */
    private void abort() {
        producer.abortTransaction();
        consumer.committed(consumer.assignment()).forEach((partition, committed) ->
            consumer.seek(partition, committed == null ? 0 : committed.offset()));
    }
}
