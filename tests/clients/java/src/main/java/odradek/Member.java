package odradek;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A group member as in tests/clients/members: BOOTSTRAP GROUP TOPIC STRATEGY [--instance ID]. The strategy is "consumer"
 * if the broker assigns the partitions (KIP-848).
 */
public final class Member implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor", "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor", "cooperative-sticky", "CooperativeStickyAssignor");

    private final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final LinkedBlockingQueue<String> orders = new LinkedBlockingQueue<>();

    private Member(String[] args) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "session.timeout.ms", 6000,
            "heartbeat.interval.ms", 500, "max.poll.interval.ms", 7000, "max.poll.records", 100,
            "enable.auto.commit", false, "auto.offset.reset", "earliest"));
        settings.put("metadata.max.age.ms", 2000);
        if (args.length == 6) {
            settings.putAll(Map.of(
                "group.instance.id", args[5], "session.timeout.ms", 30000, "max.poll.interval.ms", 30000));
        }
        if (args[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
            settings.keySet().removeAll(List.of("session.timeout.ms", "heartbeat.interval.ms"));
        } else {
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + ASSIGNORS.get(args[3]));
        }
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(args[2]), this);
    }

    public static void main(String[] args) throws Exception {
        Member member = new Member(args);
        AtomicBoolean stop = new AtomicBoolean();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.set(true);
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        Thread listener = new Thread(() -> new BufferedReader(new InputStreamReader(System.in)).lines()
            .forEach(member.orders::add));
        listener.setDaemon(true);
        listener.start();
        member.run(stop);
    }

    private void run(AtomicBoolean stop) throws InterruptedException {
        try {
            while (!stop.get()) {
                String order = orders.poll();
                if (order != null) {
                    stall(Double.parseDouble(order.split(" ")[1]));
                }
                step();
            }
        } catch (FencedInstanceIdException fenced) {
            tell("error FENCED_INSTANCE_ID");
            Runtime.getRuntime().halt(3);
        }
        consumer.close();
        tell("closed");
    }

    private void step() {
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
            lines.append("record ").append(record.partition()).append(' ').append(record.offset()).append('\n');
            uncommitted.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        write(lines.toString());
        commit();
    }

    /** What cannot be committed now is tried again, until it is committed, revoked or lost. */
    private void commit() {
        if (uncommitted.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(uncommitted);
            uncommitted.clear();
        } catch (FencedInstanceIdException fenced) {
            throw fenced;
        } catch (KafkaException failure) {
            tell("commit-failed " + failure.getClass().getSimpleName());
        }
    }

    private void stall(double seconds) throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> mine = new HashMap<>();
        consumer.assignment().forEach(
            partition -> mine.put(partition, new OffsetAndMetadata(consumer.position(partition))));
        Thread.sleep((long) (seconds * 1000));
        try {
            consumer.commitSync(mine);
            tell("commit-after-stall accepted");
        } catch (KafkaException failure) {
            tell("commit-after-stall " + failure.getClass().getSimpleName());
        }
    }

    private void tell(String line) {
        write(line + "\n");
    }

    private void write(String text) {
        out.print(text);
        out.flush();
    }

    private static String words(Collection<TopicPartition> partitions) {
        return partitions.stream().map(partition -> " " + partition.partition()).collect(Collectors.joining());
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned" + words(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        partitions.forEach(uncommitted::remove);
        tell("revoked" + words(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(uncommitted::remove);
        tell("lost" + words(partitions));
    }
}
