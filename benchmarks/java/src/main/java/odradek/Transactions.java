package odradek;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions at a steady rate: BOOTSTRAP TOPIC PARTITIONS PER_SECOND COUNT WARMUP PRODUCERS.
 *
 * Each producer has its own transactional id and thread, and its share of the rate. A transaction writes 10 records of
 * 100 bytes over the partitions. Its latency counts from its due time until commitTransaction has returned, so it
 * includes waiting for the previous transaction.
 *
 * Prints {"measuring": 1} after the warm-up, and one JSON object at the end.
 */
public final class Transactions {
    private static final int RECORDS = 10;
    private static final int RECORD_BYTES = 100;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int perSecond = Integer.parseInt(args[3]);
        int count = Integer.parseInt(args[4]);
        int warmup = Integer.parseInt(args[5]);
        int producers = Integer.parseInt(args[6]);
        List<KafkaProducer<byte[], byte[]>> opened = new ArrayList<>();
        for (int i = 0; i < producers; i++) {
            opened.add(producer(bootstrap, topic + "-" + i));
        }
        run(opened, topic, partitions, perSecond, warmup);
        System.out.println("{\"measuring\": 1}");
        System.out.flush();
        long begin = System.nanoTime();
        long[] nanos = run(opened, topic, partitions, perSecond, count);
        double seconds = (System.nanoTime() - begin) / 1e9;
        for (KafkaProducer<byte[], byte[]> producer : opened) {
            producer.close();
        }
        Arrays.sort(nanos);
        System.out.printf("{\"transactions\": %d, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f}%n",
            nanos.length, seconds, micros(nanos, 0.5), micros(nanos, 0.99));
    }

    private static long[] run(
            List<KafkaProducer<byte[], byte[]>> producers, String topic, int partitions, int perSecond, int count)
            throws InterruptedException {
        long[] nanos = new long[count];
        long between = 1_000_000_000L / perSecond;
        long begin = System.nanoTime() + between;
        AtomicInteger failures = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < producers.size(); i++) {
            int first = i;
            Thread thread = new Thread(() -> {
                for (int number = first; number < count; number += producers.size()) {
                    long due = begin + number * between;
                    for (long early = due - System.nanoTime(); early > 0; early = due - System.nanoTime()) {
                        LockSupport.parkNanos(early);
                    }
                    transact(producers.get(first), topic, partitions);
                    nanos[number] = System.nanoTime() - due;
                }
            });
            thread.setUncaughtExceptionHandler((who, failure) -> {
                failure.printStackTrace();
                failures.incrementAndGet();
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failures.get() > 0) {
            System.exit(1);
        }
        return nanos;
    }

    private static void transact(KafkaProducer<byte[], byte[]> producer, String topic, int partitions) {
        producer.beginTransaction();
        for (int i = 0; i < RECORDS; i++) {
            producer.send(new ProducerRecord<>(topic, i % partitions, null, new byte[RECORD_BYTES]));
        }
        producer.commitTransaction();
    }

    private static double micros(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1, (long) (sorted.length * quantile))] / 1e3;
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId),
            new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }
}
