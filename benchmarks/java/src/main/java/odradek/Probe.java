package odradek;

import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures what Kafka's own ConsumerPerformance and EndToEndLatency measure, by assignment instead of a group.
 *
 * <pre>
 * consume BOOTSTRAP TOPIC RECORDS PASSES   reads partition 0 from its beginning, PASSES times; the first is a warm-up
 * latency BOOTSTRAP TOPIC MESSAGES WARMUP BYTES   sends one record with acks=all and waits until it was consumed
 * </pre>
 *
 * The system property client.config names a file of properties for the clients.
 *
 * Prints one JSON object on a line of its own for each measured pass. Times are of System.nanoTime.
 */
public final class Probe {
    private static final Duration POLL = Duration.ofMillis(1000);
    private static final long GIVE_UP_NANOS = 60_000_000_000L;

    public static void main(String[] args) {
        switch (args[0]) {
            case "consume":
                consume(args[1], args[2], Long.parseLong(args[3]), Integer.parseInt(args[4]));
                break;
            case "latency":
                latency(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5]));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    private static void consume(String bootstrap, String topic, long records, int passes) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            consumer.assign(List.of(partition));
            for (int pass = 0; pass < passes; pass++) {
                consumer.seek(partition, 0);
                if (pass > 0) {
                    System.out.println("{\"measuring\": " + pass + "}");
                    System.out.flush();
                }
                long begin = System.nanoTime();
                long seen = 0;
                long bytes = 0;
                while (seen < records) {
                    ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
                    for (ConsumerRecord<byte[], byte[]> record : polled.records(partition)) {
                        seen++;
                        bytes += record.value().length;
                    }
                    giveUpAfter(begin);
                }
                double seconds = (System.nanoTime() - begin) / 1e9;
                if (pass > 0) {
                    System.out.printf(
                        "{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}%n", seen, bytes, seconds);
                }
            }
        }
    }

    private static void latency(String bootstrap, String topic, int messages, int warmup, int size) {
        TopicPartition partition = new TopicPartition(topic, 0);
        long[] nanos = new long[messages];
        byte[] value = new byte[size];
        Arrays.fill(value, (byte) 'x');
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap);
                KafkaProducer<byte[], byte[]> producer = producer(bootstrap)) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int i = -warmup; i < messages; i++) {
                if (i == 0) {
                    System.out.println("{\"measuring\": 1}");
                    System.out.flush();
                }
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                while (consumer.poll(POLL).isEmpty()) {
                    giveUpAfter(begin);
                }
                if (i >= 0) {
                    nanos[i] = System.nanoTime() - begin;
                }
            }
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
        Arrays.sort(nanos);
        System.out.printf("{\"messages\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}%n",
            messages, micros(nanos, 0.5), micros(nanos, 0.99), micros(nanos, 0.999));
    }

    private static double micros(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1, (long) (sorted.length * quantile))] / 1e3;
    }

    private static void giveUpAfter(long begin) {
        if (System.nanoTime() - begin > GIVE_UP_NANOS) {
            throw new IllegalStateException("no records for a minute");
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        Properties settings = configured();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.RECEIVE_BUFFER_CONFIG, 2 * 1024 * 1024);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        return new KafkaConsumer<>(settings);
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap) {
        Properties settings = configured();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 0);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return new KafkaProducer<>(settings);
    }

    private static Properties configured() {
        Properties settings = new Properties();
        String file = System.getProperty("client.config");
        if (file != null) {
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                settings.load(reader);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
        return settings;
    }
}
