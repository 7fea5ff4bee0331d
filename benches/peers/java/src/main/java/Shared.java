// The scenarios of locks that several may hold: RReadWriteLock, and RPermitExpirableSemaphore for permits; see `scripts/bench`.
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.redisson.api.*;

class Shared {
    static final List<String> MODES = List.of("read", "mix", "sem", "starve", "run", "crash", "crashsem");
    // A lease as the exclusive driver's, which nothing renews. In the crash scenarios the watchdog renews it, with a time of one second.
    static final int LEASE = 30;
    final RReadWriteLock lock;
    final RPermitExpirableSemaphore semaphore;
    final int permits;

    Shared(RedissonClient client, int permits) {
        lock = client.getReadWriteLock("hot");
        semaphore = client.getPermitExpirableSemaphore("hot");
        this.permits = permits;
    }

    static double now() { var now = java.time.Instant.now(); return now.getEpochSecond() * 1e3 + now.getNano() / 1e6; }

    // How long a turn was waited for, in nanoseconds.
    long turn(String mode, boolean writes) throws Exception {
        long t = System.nanoTime();
        if (mode.equals("sem")) {
            String id = semaphore.acquire(LEASE, TimeUnit.SECONDS);
            t = System.nanoTime() - t;
            semaphore.release(id);
            return t;
        }
        RLock l = writes ? lock.writeLock() : lock.readLock();
        l.lock(LEASE, TimeUnit.SECONDS);
        t = System.nanoTime() - t;
        l.unlock();
        return t;
    }

    // Five seconds of warm-up come first.
    void busy(String mode, int tasks, int process, double seconds) throws Exception {
        if (mode.equals("sem")) semaphore.trySetPermits(permits);
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        long warm = 0;
        for (int round = 0; round < 2; round++) {
            if (round == 1) Driver.ready();
            long stop = System.nanoTime() + (long) ((round == 0 ? 5.0 : seconds) * 1e9);
            Queue<Long> writes = new ConcurrentLinkedQueue<>();
            List<Future<List<Long>>> runs = new ArrayList<>();
            for (int i = 0; i < tasks; i++) {
                long first = i + process;
                runs.add(pool.submit(() -> {
                    List<Long> us = new ArrayList<>();
                    while (System.nanoTime() < stop) {
                        boolean writing = mode.equals("mix") && (first + us.size()) % 20 == 10;
                        long waited = turn(mode, writing) / 1000;
                        us.add(waited);
                        if (writing) writes.add(waited);
                    }
                    return us;
                }));
            }
            long total = 0;
            StringJoiner per = new StringJoiner(", "), us = new StringJoiner(", ");
            for (Future<List<Long>> f : runs) { List<Long> u = f.get(); total += u.size(); per.add("" + u.size()); for (int i = 0; i < u.size(); i += 7) us.add("" + u.get(i)); }
            if (round == 0) warm = total;
            else System.out.printf("{\"locks\": %d, \"warm\": %d, \"per_task\": [%s], \"us\": [%s], \"writer_us\": %s}%n", total, warm, per, us, writes);
        }
    }

    // A writer that has not had its turn when the time is over says for how long it has waited.
    void starve(int tasks, int process, double seconds) throws Exception {
        Driver.ready();
        long stop = System.nanoTime() + (long) (seconds * 1e9);
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        List<Future<Long>> readers = new ArrayList<>();
        for (int i = 0; i < tasks; i++) {
            int task = i;
            readers.add(pool.submit(() -> {
                Thread.sleep(5L * task / tasks);
                long n = 0;
                for (; System.nanoTime() < stop; n++) { lock.readLock().lock(LEASE, TimeUnit.SECONDS); Thread.sleep(5); lock.readLock().unlock(); }
                return n;
            }));
        }
        List<Long> writes = new ArrayList<>();
        while (process == 0 && System.nanoTime() < stop) {
            Thread.sleep(20);
            long t = System.nanoTime();
            lock.writeLock().lock(LEASE, TimeUnit.SECONDS);
            writes.add((System.nanoTime() - t) / 1000);
            lock.writeLock().unlock();
        }
        long total = writes.size();
        StringJoiner per = new StringJoiner(", ");
        for (Future<Long> f : readers) { long n = f.get(); total += n; per.add("" + n); }
        System.out.printf("{\"locks\": %d, \"per_task\": [%s], \"writer_us\": %s}%n", total, per, writes);
    }

    void run(int tasks, int process, double seconds) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        Driver.ready();
        if (process == 0) lock.writeLock().lock(120, TimeUnit.SECONDS);
        Thread.sleep((long) (seconds * 500));
        List<Future<Double>> readers = new ArrayList<>();
        for (int i = 0; i < tasks; i++) readers.add(pool.submit(() -> { lock.readLock().lock(LEASE, TimeUnit.SECONDS); double at = now(); lock.readLock().unlock(); return at; }));
        String freed = "null";
        if (process == 0) { Thread.sleep((long) (seconds * 500)); freed = String.format(Locale.ROOT, "%.3f", now()); lock.writeLock().unlock(); }
        StringJoiner at = new StringJoiner(", ");
        for (Future<Double> f : readers) at.add(String.format(Locale.ROOT, "%.3f", f.get()));
        System.out.printf("{\"locks\": %d, \"per_task\": [1], \"freed_at\": %s, \"served_at\": [%s]}%n", tasks, freed, at);
    }

    // Permits have no watchdog: their lease is one second from the start.
    void crash(String mode, int process) throws Exception {
        boolean sem = mode.equals("crashsem");
        if (sem) semaphore.trySetPermits(permits);
        if (process < 3) {
            if (sem) semaphore.acquire(1, TimeUnit.SECONDS); else lock.readLock().lock();
            Driver.ready();
            while (System.in.read() != '\n') { }
            if (!sem) lock.readLock().unlock();
            System.out.println("{\"locks\": 1, \"per_task\": [1]}");
            return;
        }
        Driver.ready();
        if (sem) semaphore.acquire(1, TimeUnit.SECONDS); else lock.writeLock().lock();
        System.out.printf(Locale.ROOT, "{\"locks\": 1, \"per_task\": [1], \"in_at\": %.3f}%n", now());
        if (!sem) lock.writeLock().unlock();
    }

    void scenario(String mode, String[] a) throws Exception {
        int tasks = Integer.parseInt(Driver.opt(a, "tasks")), process = Integer.parseInt(Driver.opt(a, "process"));
        double seconds = Double.parseDouble(Driver.opt(a, "seconds"));
        switch (mode) {
            case "starve" -> starve(tasks, process, seconds);
            case "run" -> run(tasks, process, seconds);
            case "crash", "crashsem" -> crash(mode, process);
            default -> busy(mode, tasks, process, seconds);
        }
    }
}
