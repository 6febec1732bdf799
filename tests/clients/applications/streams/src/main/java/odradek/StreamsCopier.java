package odradek;

import java.nio.file.Files;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Copies numbers with exactly-once semantics, until it is killed: STREAMSCOPIER BOOTSTRAP FROM TO GROUP PARTITIONS.
 *
 * Number n is in partition n % PARTITIONS, and so is its copy. It takes the way through a repartition topic, and a
 * store with a changelog has the last number of each partition: the application ends if another one than the next
 * follows. Prints "committed" when Streams has committed. Streams makes transactional ids itself.
 */
public final class StreamsCopier {
    private static final String STORE = "last";
    private static final StreamPartitioner<String, String> BY_NUMBER =
        (topic, key, value, partitions) -> Optional.of(Set.of((int) (number(value) % partitions)));

    private StreamsCopier() {
    }

    private static long number(String value) {
        return Long.parseLong(value.substring(value.lastIndexOf(' ') + 1));
    }

    /** Compares each number with the one before. */
    private static final class InOrder extends ContextualProcessor<String, String, String, String> {
        private final int partitions;
        private KeyValueStore<Integer, Long> last;

        private InOrder(int partitions) {
            this.partitions = partitions;
        }

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            last = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, String> record) {
            long number = number(record.value());
            int partition = (int) (number % partitions);
            Long before = last.get(partition);
            if (number != (before == null ? partition : before + partitions)) {
                throw new IllegalStateException(number + " follows " + before);
            }
            last.put(partition, number);
            context().forward(record.withValue("copy of " + number));
        }
    }

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[4]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(STORE), Serdes.Integer(), Serdes.Long()));
        builder.<String, String>stream(arguments[1])
            .selectKey((key, value) -> value) // what has no key is not repartitioned
            .repartition(Repartitioned.<String, String>as("between").withStreamPartitioner(BY_NUMBER)
                .withNumberOfPartitions(partitions))
            .process(() -> new InOrder(partitions), STORE)
            .to(arguments[2], Produced.streamPartitioner(BY_NUMBER));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 200L);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("copier").toString());
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        double committed = 0;
        while (streams.state() != KafkaStreams.State.ERROR) {
            Thread.sleep(50);
            double now = commits(streams);
            if (now > committed) {
                System.out.println("committed");
            }
            committed = now;
        }
        System.exit(3);
    }

    private static double commits(KafkaStreams streams) {
        return streams.metrics().values().stream()
            .filter(each -> each.metricName().name().equals("commit-total")
                && each.metricName().group().equals("stream-thread-metrics"))
            .mapToDouble(each -> (double) each.metricValue()).sum();
    }
}
