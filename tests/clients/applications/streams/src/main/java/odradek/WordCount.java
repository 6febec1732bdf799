package odradek;

import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of sentences with exactly-once semantics: WORDCOUNT BOOTSTRAP.
 *
 * It has a repartition topic and a changelog. It stops and starts with an empty state directory in between, so it
 * restores the counts from the changelog. It fails if the counts are not right in two minutes.
 */
public final class WordCount {
    private static final List<String> SENTENCES =
        List.of("the wheel turns", "the small wheel", "a wheel of thread", "the stairs", "the wheel again");
    private static final Duration LIMIT = Duration.ofMinutes(2);

    private final String bootstrap;

    private WordCount(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private KafkaStreams newStreams() throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("sentences")
            .flatMapValues(sentence -> Arrays.asList(sentence.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("word-count").toString());
        return new KafkaStreams(builder.build(), settings);
    }

    private void createTopics() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                new NewTopic("sentences", 1, (short) 1), new NewTopic("counts", 1, (short) 1))).all().get();
        }
    }

    private void write(List<String> sentences) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String sentence : sentences) {
                producer.send(new ProducerRecord<>("sentences", sentence)).get();
            }
        }
    }

    /** Reads the counts from their beginning until they are as wanted. */
    private void until(String word, long wanted) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "reader-of-" + wanted, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "enable.auto.commit", "false");
        Map<String, Long> counts = new HashMap<>();
        long deadline = System.nanoTime() + LIMIT.toNanos();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of("counts"));
            while (counts.getOrDefault(word, 0L) < wanted) {
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("the counts are " + counts);
                }
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(record.key(), record.value());
                }
            }
        }
    }

    private void run() throws Exception {
        createTopics();
        for (int first = 0; first < SENTENCES.size(); first += 3) {
            List<String> some = SENTENCES.subList(first, Math.min(first + 3, SENTENCES.size()));
            KafkaStreams streams = newStreams();
            streams.start();
            write(some);
            until("wheel", first == 0 ? 3 : 4);
            streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        }
    }

    public static void main(String[] arguments) throws Exception {
        new WordCount(arguments[0]).run();
        System.out.println("done");
        System.exit(0);
    }
}
