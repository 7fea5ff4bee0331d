#!/usr/bin/env python3
"""What distlock costs to compile: the facade from nothing, and 200 annotated functions beside the same without the attribute.

    benches/compile_time.py [--rounds 5] [--functions 200] [--jobs 2] [--toolchain 1.95.0] [--no-facade]

Makes its crates and target directories in a temporary place. Dependencies are fetched before the clock runs.
Rounds are interleaved; the figures are medians, with the smallest and the largest in brackets. CPU seconds, of cargo and all it starts,
hold on a machine that does other things too; wall time does not. The machine's load is printed with them.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f: f.write(text)

def crate(home, name, main):
    write(f"{home}/{name}/Cargo.toml", f"""[package]
name = "{name}"
version = "0.0.0"
edition = "2024"
[dependencies]
distlock = {{ path = {json.dumps(ROOT)} }}
tokio = {{ version = "1", features = ["rt"] }}
[workspace]
""")
    write(f"{home}/{name}/src/main.rs", main)
    shutil.copy(f"{ROOT}/Cargo.lock", f"{home}/{name}/Cargo.lock")
    return f"{home}/{name}"

def functions(count, attribute):
    """small handlers; all are called, or nothing would be compiled of them"""
    text = "#![allow(unused_imports)]\nuse distlock::{LockError, redis_lock};\n"
    for n in range(count):
        if attribute: text += '#[redis_lock(key = "order:{id}", ttl = "5s", wait = "2s")]\n'
        text += f"""async fn pay_{n}(id: u64, text: &str) -> Result<u64, LockError> {{
    tokio::task::yield_now().await;
    Ok(id + text.len() as u64 + {n})
}}
"""
    calls = "".join(f"    sum += pay_{n}(sum, text).await?;\n" for n in range(count))
    return text + f"""async fn all(text: &str) -> Result<u64, LockError> {{
    let mut sum = 0;
{calls}    Ok(sum)
}}
fn main() {{
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::process::exit(runtime.block_on(Box::pin(all("text"))).is_ok() as i32);
}}
"""

class Cargo:
    def __init__(self, args): self.jobs, self.toolchain = args.jobs, args.toolchain
    def __call__(self, what, directory, target):
        """seconds of CPU and of wall time"""
        command = ["cargo"] + ([f"+{self.toolchain}"] if self.toolchain else []) + what
        if what[0] != "fetch": command += ["--offline", "--quiet"] + ([f"-j{self.jobs}"] if self.jobs else [])
        env = {k: v for k, v in os.environ.items() if k not in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")}
        env |= {"CARGO_TARGET_DIR": target, "CARGO_INCREMENTAL": "0"}
        start, before = time.monotonic(), os.times()
        done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)
        if done.returncode: sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system, time.monotonic() - start

def figures(times, which):
    times = [t[which] for t in times]
    return f"{statistics.median(times):.2f} ({min(times):.2f}–{max(times):.2f})"

def cpu(times): return statistics.median(t[0] for t in times)

def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=5); a.add_argument("--functions", type=int, default=200)
    a.add_argument("--jobs", type=int); a.add_argument("--toolchain")
    a.add_argument("--no-facade", action="store_true", help="only the functions")
    a = a.parse_args()
    cargo, home = Cargo(a), tempfile.mkdtemp()
    load = lambda: "%.1f %.1f %.1f" % os.getloadavg()
    try:
        facade = crate(home, "facade", "fn main() {}\n")
        pairs = {"plain": crate(home, "plain", functions(a.functions, False)),
                 "annotated": crate(home, "annotated", functions(a.functions, True))}
        for directory in [facade, *pairs.values()]: cargo(["fetch"], directory, f"{home}/none")
        print(f"{os.cpu_count()} cores, load {load()}", flush=True)

        nothing = {"check": [], "build": []}
        for _ in range(0 if a.no_facade else a.rounds):
            for command, times in nothing.items():
                target = f"{home}/fresh"
                shutil.rmtree(target, ignore_errors=True)
                times.append(cargo([command], facade, target))
        if not a.no_facade:
            print(f"\nThe facade from nothing, default features, debug\n\n| command | CPU s | wall s |\n|---|---|---|")
            for command, times in nothing.items(): print(f"| {command} | {figures(times, 0)} | {figures(times, 1)} |", flush=True)

        times = {(n, c): [] for n in pairs for c in ("check", "build")}
        for name, directory in pairs.items():
            for command in ("check", "build"): cargo([command], directory, f"{home}/warm")
        for _ in range(a.rounds):
            for (name, command), seconds in times.items():
                os.utime(f"{pairs[name]}/src/main.rs")
                seconds.append(cargo([command], pairs[name], f"{home}/warm"))
        print(f"\n{a.functions} functions in a crate, its dependencies built, debug, not incremental\n")
        print("| command | plain CPU s | annotated CPU s | CPU ms more for each function | plain wall s | annotated wall s |\n|---|---|---|---|---|---|")
        for command in ("check", "build"):
            plain, annotated = times["plain", command], times["annotated", command]
            more = (cpu(annotated) - cpu(plain)) * 1000 / a.functions
            print(f"| {command} | {figures(plain, 0)} | {figures(annotated, 0)} | {more:.1f} | {figures(plain, 1)} | {figures(annotated, 1)} |")
        print(f"\nload afterwards {load()}")
    finally:
        shutil.rmtree(home, ignore_errors=True)

main()
