#!/usr/bin/env python3
"""Side-by-side benchmark of Redis lock libraries: one private redis-server, the same work for every driver.

    benches/run.py --driver NAME='COMMAND' [--driver …] [--scenario single,spread,hot1,hot8,idle] [--seconds 3] [--rounds 3] [--delay-ms 0.25]

A driver is a program that takes
    --url redis://127.0.0.1:PORT --scenario own|same|idle --tasks N --seconds S
It connects, warms up, prints the line READY, waits for a line on its standard input (so that all processes start together), and then prints one JSON line: {"locks": n, "per_task": [n, …], "us": [latency of each acquisition in µs, sampled]}.
  own   each task locks and unlocks a key of its own, as fast as it can
  same  all tasks lock and unlock one key "hot"
  idle  task 0 takes "hot" first and holds it S seconds, the others wait for it; prints also
        {"drain_ms": time from the release until the last waiter had its turn, "first_ms": … the first}
A driver that warms up first (JVM) adds "warm": locks taken while warming up, so that calls and CPU per lock stay true.
With --delay-ms the drivers talk to the server through a proxy (the test kit's, built on first use) that delays each direction by that much.
Rounds are interleaved (A B A B …). Figures: median over rounds. Server commands are counted by the server
(calls inside scripts included), server CPU by its own clock: both hold on a noisy machine; rates only as ratios.
"""
import argparse, json, os, shlex, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

SCENARIOS = {               # processes, driver scenario, tasks per process
    "single": (1, "own", 1),
    "spread": (1, "own", 100),
    "hot1": (1, "same", 100),
    "hot8": (8, "same", 4),
    "idle": (1, "idle", 200),
}

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)); return s.getsockname()[1]

def info(port, section):
    out = subprocess.run(["redis-cli", "-p", str(port), "info", section], capture_output=True, text=True).stdout
    return dict(l.split(":", 1) for l in out.splitlines() if ":" in l)

def calls(port):
    """client commands, and all calls (scripts' inner calls included)"""
    stats = info(port, "commandstats")
    total = {k[8:]: int(v.split("calls=")[1].split(",")[0]) for k, v in stats.items() if k.startswith("cmdstat_")}
    return sum(n for c, n in total.items() if c not in ("info", "config|resetstat", "ping", "hello", "client|setinfo", "auth", "select", "flushall"))

def cpu(port):
    c = info(port, "cpu"); return float(c["used_cpu_sys"]) + float(c["used_cpu_user"])

def delayed(port, ms):
    """a proxy before the server, and the port it listens on"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    cargo = ["cargo", "run", "--release", "--quiet", "-p", "distlock-testkit", "--bin", "delay-proxy", "--"]
    proxy = subprocess.Popen(cargo + [f"127.0.0.1:{port}", str(ms)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = proxy.stdout.readline().strip()
    if not address: sys.exit("the delaying proxy did not start")
    return proxy, int(address.rsplit(":", 1)[1])

def one(cmd, scenario, seconds, port, front):
    procs, mode, tasks = SCENARIOS[scenario]
    subprocess.run(["redis-cli", "-p", str(port), "flushall"], capture_output=True)
    subprocess.run(["redis-cli", "-p", str(port), "config", "resetstat"], capture_output=True)
    c0, u0 = cpu(port), os.times()
    argv = shlex.split(cmd) + ["--url", f"redis://127.0.0.1:{front}", "--scenario", mode, "--tasks", str(tasks), "--seconds", str(seconds)]
    ps = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(procs)]
    for p in ps:
        while (l := p.stdout.readline()).strip() != "READY":
            if not l: return {"failed": (p.communicate()[1].strip().splitlines() or ["not ready"])[-1][:200]}
    for p in ps: p.stdin.write("\n"); p.stdin.flush()
    outs = []
    for p in ps:
        try:
            out, err = p.communicate(timeout=seconds * 20 + 60)
        except subprocess.TimeoutExpired:
            p.kill(); p.communicate(); return {"failed": "no answer"}
        lines = [l for l in out.splitlines() if l.startswith("{")]
        if p.returncode or not lines:
            return {"failed": (err.strip().splitlines() or ["no output"])[-1][:200]}
        outs.append(json.loads(lines[-1]))
    u1 = os.times()
    locks = sum(o["locks"] for o in outs)
    asked = max(1, locks + sum(o.get("warm", 0) for o in outs))      # what the server and the client worked for
    us = sorted(x for o in outs for x in o.get("us", []))
    per = [n for o in outs for n in o["per_task"]]
    r = {"locks": locks, "rate": locks / seconds, "calls_per_lock": calls(port) / asked,
         "server_us": (cpu(port) - c0) * 1e6 / asked,
         "client_us": (u1.children_user + u1.children_system - u0.children_user - u0.children_system) * 1e6 / asked,
         "min": min(per), "max": max(per)}
    if us:
        r |= {"p50": us[len(us) // 2], "p99": us[min(len(us) - 1, len(us) * 99 // 100)], "worst": us[-1]}
    for k in ("drain_ms", "first_ms"):
        if k in outs[0]: r[k] = outs[0][k]
    return r

def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--driver", action="append", required=True, metavar="NAME=COMMAND")
    a.add_argument("--scenario", default=",".join(SCENARIOS)); a.add_argument("--seconds", type=float, default=3)
    a.add_argument("--rounds", type=int, default=3); a.add_argument("--json", help="write all figures here")
    a.add_argument("--delay-ms", type=float, help="delay each direction by this much")
    a = a.parse_args()
    drivers = [d.split("=", 1) for d in a.driver]
    tmp, port = tempfile.mkdtemp(), free_port()
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tmp], stdout=subprocess.DEVNULL)
    proxy, front = None, port
    try:
        while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode: time.sleep(0.05)
        if a.delay_ms: proxy, front = delayed(port, a.delay_ms)
        table = {}
        for s in a.scenario.split(","):
            runs = {n: [] for n, _ in drivers}
            for _ in range(a.rounds):
                for n, c in drivers: runs[n].append(one(c, s, a.seconds, port, front))
            print(f"\n## {s}  ({SCENARIOS[s][0]} process(es) × {SCENARIOS[s][2]} tasks, {a.seconds:g} s, {a.rounds} rounds" + (f", {a.delay_ms:g} ms each way)" if a.delay_ms else ")"))
            print("| system | locks/s | × first | p50 µs | p99 µs | worst µs | fair max/min | server calls/lock | server µs/lock | client µs/lock | first ms | drain ms |")
            print("|---|---|---|---|---|---|---|---|---|---|---|---|")
            base = None
            for n, _ in drivers:
                good = [r for r in runs[n] if "failed" not in r]
                if not good:
                    print(f"| {n} | failed: {runs[n][0]['failed']} |||||||||||"); continue
                m = {k: statistics.median(r[k] for r in good if k in r) for k in good[0]}
                table.setdefault(s, {})[n] = m; base = base or m["rate"] or None
                f = lambda k, d=0: f"{m[k]:.{d}f}" if k in m else "–"
                print(f"| {n} | {f('rate')} | {m['rate'] / base if base else 0:.2f} | {f('p50')} | {f('p99')} | {f('worst')} | {m['max'] / m['min'] if m['min'] else float('inf'):.1f} | {f('calls_per_lock', 1)} | {f('server_us', 1)} | {f('client_us', 1)} | {f('first_ms', 1)} | {f('drain_ms', 1)} |", flush=True)
        if a.json: json.dump(table, open(a.json, "w"), indent=1)
    finally:
        if proxy: proxy.stdin.close(); proxy.wait()
        server.send_signal(signal.SIGTERM); server.wait(); shutil.rmtree(tmp, ignore_errors=True)

main()
