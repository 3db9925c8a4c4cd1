//! The allocation hooks: a small shared library inside the recorded program, that writes every request for memory into the live file of a
//! heap capture (`stormlog-capture` has its shape).
//!
//! One set of hook functions, two ways in. *Preloaded* (`LD_PRELOAD`, options in `STORMLOG_HEAP`) it exports the functions it
//! hooks and records from the first allocation on. *Loaded late* (`dlopen` with `RTLD_LOCAL`, then `stormlog_heap_start`)
//! it points the tables through which loaded objects call those functions at its own, and back again at the end.
//!
//! ```text
//! malloc… ─► hooks, mappings ─► thread (in? out?) ─► events ─► stacks ─► nodes, codes ─┐
//! dlopen… ─► loader ─► got                                       sample               ├─► writer ─► slot of the live file
//! PyMem_… ─► pyalloc                                                                   │             session
//! c10::report… ─► framework ─► devices ─► stacks, backward ────────────────────────────┘
//! ```
//!
//! On the way from a hook to a record nothing allocates, waits, panics or calls the system; a system call is made when a slot
//! is full. Nothing that goes wrong here (no disk, no memory, no file) fails the program: events are lost and counted.
//! For Linux on x86-64 with the GNU C library; elsewhere this crate is empty.

#![cfg_attr(test, allow(dead_code, reason = "unit tests have neither constructor nor exports"))]
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

pub mod api;
mod backward;
mod bootstrap_heap;
mod clock;
mod code_end;
mod code_objects;
mod descriptor;
mod devices;
pub mod ends;
mod events;
pub mod exec;
mod framework;
mod got;
pub mod gpu_api;
pub mod hooks;
mod injected;
pub mod kill;
mod libc_symbols;
mod loader;
mod loader_lock;
mod logical_clock;
mod mappings;
mod native;
mod nodes;
mod object;
mod operators;
mod options;
mod process;
mod pyalloc;
pub mod retention;
mod sample;
mod sanitizer;
mod session;
pub mod sigbus;
mod stacks;
mod sys;
mod thread;
mod tls;
mod writer;
pub mod x86_64;
