import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, because the start of a JVM takes longer than a tool.
 *
 * <p>A line of stdin is {"command": [CLASS, ARGUMENT...], "until": TEXT, "input": TEXT}. A line of stdout is the tool's
 * {"out": TEXT, "err": TEXT, "status": NUMBER}. A tool whose threads go on for ever is ended when it has printed "until".
 * A tool that calls exit never continues, as if the JVM had ended.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int STILL_RUNS = -1;
    private static final int PAUSE_MS = 20;
    private static final int TIMEOUT_S = 120;

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final List<Runnable> hooks = new ArrayList<>();
    private volatile int status = STILL_RUNS;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true)); // once: Scala keeps the first one that it sees
        System.setErr(new PrintStream(ERR, true));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(new Tools().run(JSON.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // threads of tools that called exit are still there
    }

    private Map<String, Object> run(JsonNode request) throws Exception {
        OUT.reset();
        ERR.reset();
        exitBy("setExitProcedure", arguments -> endForEver((int) arguments[0]));
        exitBy("setHaltProcedure", arguments -> endForEver((int) arguments[0]));
        exitBy("setShutdownHookAdder", arguments -> hooks.add((Runnable) arguments[1]));
        System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        List<String> command = new ArrayList<>();
        request.get("command").forEach(word -> command.add(word.asText()));
        Thread thread = new Thread(() -> call(command));
        thread.setDaemon(true);
        thread.start();
        await(request.path("until").asText(null));
        hooks.forEach(Runnable::run);
        return Map.of("out", OUT.toString(), "err", ERR.toString(), "status", status);
    }

    /** Calls a setter of Kafka's class Exit, which is in another package since 4.4, with the only method of its interface. */
    private static void exitBy(String setter, Consumer<Object[]> procedure) throws ReflectiveOperationException {
        for (Method method : exitClass().getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?>[] types = {method.getParameterTypes()[0]};
                method.invoke(null, Proxy.newProxyInstance(types[0].getClassLoader(), types, (proxy, called, arguments) -> {
                    procedure.accept(arguments);
                    return null;
                }));
            }
        }
    }

    private static Class<?> exitClass() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException moved) {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
    }

    private void call(List<String> command) {
        try {
            Method main = Class.forName(command.get(0)).getMethod("main", String[].class);
            main.invoke(null, (Object) command.subList(1, command.size()).toArray(new String[0]));
            end(0);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            end(1);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            end(1);
        }
    }

    private synchronized void end(int code) {
        if (status == STILL_RUNS) {
            status = code;
        }
        ended.countDown();
    }

    private void endForEver(int code) {
        end(code);
        while (true) {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException goOn) {
                continue;
            }
        }
    }

    private void await(String until) throws InterruptedException {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (System.nanoTime() < giveUp) {
            boolean hasEnded = ended.await(PAUSE_MS, TimeUnit.MILLISECONDS);
            if (until == null ? hasEnded : OUT.toString().contains(until)) {
                return;
            }
        }
    }
}
