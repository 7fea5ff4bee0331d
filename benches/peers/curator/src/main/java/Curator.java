// The driver of Curator's InterProcessMutex for `beside`; what a driver does is said in `benches/driver/src/bin/beside/peer.rs`.
import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

public class Curator {
    static int number(String[] a, String k) { return Integer.parseInt(a[Arrays.asList(a).indexOf("--" + k) + 1]); }

    static void lock(InterProcessMutex mutex, int bodyUs) throws Exception {
        mutex.acquire();
        if (bodyUs > 0) Thread.sleep(bodyUs / 1000, bodyUs % 1000 * 1000);
        mutex.release();
    }

    public static void main(String[] a) throws Exception {
        String addr = a[Arrays.asList(a).indexOf("--addr") + 1];
        int clients = number(a, "clients"), each = number(a, "tasks"), keys = number(a, "keys"), body = number(a, "body-us");
        int tasks = clients * each;
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        List<InterProcessMutex[]> mutexes = new ArrayList<>();
        for (int c = 0; c < clients; c++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(addr, 30000, 15000, new RetryForever(50));
            client.start();
            client.blockUntilConnected();
            for (int n = 0; n < each; n++) {
                InterProcessMutex[] own = new InterProcessMutex[keys];
                for (int k = 0; k < keys; k++) own[k] = new InterProcessMutex(client, "/curator/bench-" + k);
                mutexes.add(own);
            }
        }
        // The machine's code is compiled as it runs: warm, as a service is.
        for (int warm = 0; warm < 2; warm++) {
            if (warm == 1) { System.out.println("READY"); System.out.flush(); while (System.in.read() != '\n') { } }
            long start = System.nanoTime(), stop = start + (warm == 0 ? 3 : number(a, "seconds")) * 1_000_000_000L;
            List<Future<long[]>> runs = new ArrayList<>();
            for (InterProcessMutex[] own : mutexes) runs.add(pool.submit(() -> {
                long locks = 0, worst = 0;
                while (System.nanoTime() < stop) {
                    long asked = System.nanoTime();
                    lock(own[(int) (locks % keys)], body);
                    worst = Math.max(worst, System.nanoTime() - asked);
                    locks++;
                }
                return new long[] { locks, worst };
            }));
            StringBuilder locks = new StringBuilder();
            long worst = 0;
            for (Future<long[]> run : runs) { long[] r = run.get(); locks.append(' ').append(r[0]); worst = Math.max(worst, r[1]); }
            if (warm == 1) System.out.println((System.nanoTime() - start) / 1000 + " " + worst / 1000 + locks);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
