//! Child processes that hold memory on demand: this test program, started again.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test's helper may panic, and its child must answer"
)]

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROLE: &str = "STORMLOG_COLLECT_CHILD";

/// Waits for something the kernel does in its own time.
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain");
        sleep(Duration::from_millis(2));
    }
}

/// A child that obeys lines on its standard input, and dies with its owner.
pub struct Child {
    child: process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_program", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut child = Child { child, input, output };
        child.wait_ready();
        child
    }

    fn wait_ready(&mut self) {
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended early");
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells the child something and waits until it has done it.
    pub fn say(&mut self, word: &str) {
        self.send(word);
        self.wait_ready();
    }

    pub fn send(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a child does: `hold` takes as many MiB as each line says and gives them back; `hog` takes all there is.
pub fn child_program() {
    // Started by hand it must not wait for input.
    let Ok(role) = std::env::var(ROLE) else { return };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match role.as_str() {
            "hold" => {
                let mib: usize = line.trim().parse().unwrap();
                // Large enough to be mapped on its own and given back at once.
                drop(black_box(vec![1u8; mib << 20]));
            }
            "hog" => hog(),
            _ => return,
        }
        println!("ready");
    }
}

fn hog() {
    let mut held = Vec::new();
    for _ in 0..4096 {
        held.push(black_box(vec![1u8; 1 << 20]));
    }
    drop(held);
}
