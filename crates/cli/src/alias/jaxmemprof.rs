//! `jaxmemprof`: `stormlog` under its older name.

mod exec;

fn main() -> std::process::ExitCode {
    exec::become_stormlog("jaxmemprof")
}
