package odradek;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * A service with transactions, retry topics, and request and reply: SHOP BOOTSTRAP.
 *
 * It bills orders in transactions, delivers what can be delivered at the first or the second attempt, puts the rest
 * into a dead letter topic, and answers a question. It fails if one of these does not happen in a minute.
 */
@Configuration
@EnableKafka
@EnableKafkaRetryTopic
public class Shop {
    private static final int ORDERS = 3;
    private static final int WAIT_S = 60;

    private final CountDownLatch billed = new CountDownLatch(ORDERS);
    private final CountDownLatch delivered = new CountDownLatch(2);
    private final CountDownLatch lost = new CountDownLatch(1);

    @Value("${bootstrap}")
    private String bootstrap;

    @Bean
    KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", bootstrap));
    }

    @Bean
    KafkaAdmin.NewTopics topics() {
        return new KafkaAdmin.NewTopics(
            topic("orders"), topic("bills"), topic("deliveries"), topic("questions"), topic("answers"));
    }

    private static NewTopic topic(String name) {
        return new NewTopic(name, 1, (short) 1);
    }

    private DefaultKafkaProducerFactory<String, String> newProducers() {
        return new DefaultKafkaProducerFactory<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class));
    }

    @Bean
    ProducerFactory<String, String> producers() {
        return newProducers();
    }

    @Bean
    ProducerFactory<String, String> transactionalProducers() {
        DefaultKafkaProducerFactory<String, String> producers = newProducers();
        producers.setTransactionIdPrefix("shop-");
        return producers;
    }

    @Bean
    ConsumerFactory<String, String> consumers() {
        return new DefaultKafkaConsumerFactory<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class));
    }

    @Bean
    KafkaTemplate<String, String> template() {
        return new KafkaTemplate<>(producers());
    }

    @Bean
    KafkaTemplate<String, String> transactionalTemplate() {
        return new KafkaTemplate<>(transactionalProducers());
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(consumers());
        factory.setReplyTemplate(template());
        return factory;
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> inTransactions() {
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(consumers());
        factory.getContainerProperties()
            .setKafkaAwareTransactionManager(new KafkaTransactionManager<>(transactionalProducers()));
        return factory;
    }

    @Bean
    ReplyingKafkaTemplate<String, String, String> asking() {
        ContainerProperties replies = new ContainerProperties("answers");
        replies.setGroupId("asking");
        return new ReplyingKafkaTemplate<>(producers(), new KafkaMessageListenerContainer<>(consumers(), replies));
    }

    @Bean
    TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @KafkaListener(id = "billing", topics = "orders", containerFactory = "inTransactions")
    void bill(String order) {
        transactionalTemplate().send("bills", "bill of " + order);
    }

    @KafkaListener(id = "payments", topics = "bills")
    void pay(String bill) {
        billed.countDown();
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200, multiplier = 2), kafkaTemplate = "template")
    @KafkaListener(id = "driver", topics = "deliveries")
    void deliver(String parcel, @Header(KafkaHeaders.RECEIVED_TOPIC) String topic) {
        if (parcel.equals("lost") || parcel.equals("late") && topic.equals("deliveries")) {
            throw new IllegalStateException(parcel + " was not delivered");
        }
        delivered.countDown();
    }

    @DltHandler
    void giveUp(String parcel) {
        lost.countDown();
    }

    @KafkaListener(id = "clerk", topics = "questions")
    @SendTo
    String answer(String question) {
        return "the answer to " + question;
    }

    private void run() throws Exception {
        for (int number = 0; number < ORDERS; number++) {
            String order = "order " + number;
            transactionalTemplate().executeInTransaction(template -> template.send("orders", order));
        }
        try {
            transactionalTemplate().executeInTransaction(template -> {
                template.send("orders", "a cancelled order");
                template.flush();
                throw new IllegalArgumentException("cancelled");
            });
            throw new AssertionError("the transaction was not aborted");
        } catch (IllegalArgumentException expected) {
            await(billed, "bills");
        }
        for (String parcel : new String[] {"on time", "late", "lost"}) {
            template().send("deliveries", parcel).get(WAIT_S, TimeUnit.SECONDS);
        }
        await(delivered, "deliveries");
        await(lost, "a lost parcel");
        ProducerRecord<String, String> question = new ProducerRecord<>("questions", "what is in it");
        String answer = asking().sendAndReceive(question).get(WAIT_S, TimeUnit.SECONDS).value();
        if (!answer.equals("the answer to what is in it")) {
            throw new AssertionError(answer);
        }
    }

    private static void await(CountDownLatch latch, String what) throws InterruptedException {
        if (!latch.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new AssertionError("no " + what + " in a minute");
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("bootstrap", arguments[0]);
        try (var context = new AnnotationConfigApplicationContext(Shop.class)) {
            if (!context.getBean(ReplyingKafkaTemplate.class).waitForAssignment(java.time.Duration.ofSeconds(WAIT_S))) {
                throw new AssertionError("the answers are not assigned");
            }
            context.getBean(Shop.class).run();
        }
        System.out.println("done");
        System.exit(0);
    }
}
