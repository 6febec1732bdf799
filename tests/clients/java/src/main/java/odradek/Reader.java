package odradek;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads partition 0 of each topic to its end, also past what it cannot read: READER BOOTSTRAP TOPIC...
 *
 * Prints "TOPIC OFFSET CHECKSUM" for a record, with the checksum of tests/clients/bodies/readers.py, and
 * "TOPIC OFFSET ! REASON" for an offset at which the consumer stops. It goes on at the next offset.
 */
public final class Reader {
    private static final Duration SILENCE = Duration.ofSeconds(10);

    private Reader() {
    }

    public static void main(String[] args) throws IOException {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", args[0], "enable.auto.commit", false, "fetch.max.wait.ms", 20),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String topic : List.of(args).subList(1, args.length)) {
                read(consumer, new TopicPartition(topic, 0));
            }
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) throws IOException {
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        long silentSince = System.nanoTime();
        for (long position = 0; position < end; position = consumer.position(partition)) {
            String failure = System.nanoTime() - silentSince > SILENCE.toNanos() ? "nothing comes" : null;
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println(partition.topic() + " " + record.offset() + " " + checksum(record));
                    silentSince = System.nanoTime();
                }
            } catch (KafkaException thrown) {
                Throwable cause = thrown.getCause() == null ? thrown : thrown.getCause();
                failure = cause.toString().replace('\n', ' ');
            }
            if (failure != null) {
                long at = consumer.position(partition);
                System.out.println(partition.topic() + " " + at + " ! " + failure);
                consumer.seek(partition, at + 1);
                silentSince = System.nanoTime();
            }
        }
    }

    private static long checksum(ConsumerRecord<byte[], byte[]> record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        field(out, record.key());
        field(out, record.value());
        CRC32 crc = new CRC32();
        crc.update(bytes.toByteArray());
        return crc.getValue();
    }

    private static void field(DataOutputStream out, byte[] value) throws IOException {
        out.writeInt(value == null ? -1 : value.length);
        if (value != null) {
            out.write(value);
        }
    }
}
