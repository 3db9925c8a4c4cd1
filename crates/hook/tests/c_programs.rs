//! C programs under the hooks: every function, every way to begin and to end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Capture, capture, captures, compile, directory, hook, preloaded, preloaded_with, prepare};
use stormlog_capture::layout::{LIVE_MAGIC, flags, header, state};
use stormlog_capture::record::{definition, kind};

#[test]
fn every_function_is_recorded_with_its_size() {
    let place = directory();
    let program = compile(place.path(), "every_function", "every_function.c", &[]);
    let output = preloaded(&mut Command::new(program), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    let expected = [
        (kind::MALLOC, 1_000_003),
        (kind::CALLOC, 1_000_004),
        (kind::MALLOC, 1_000_005),
        (kind::REALLOC, 1_000_006),
        (kind::REALLOC, 1_000_007),
        (kind::POSIX_MEMALIGN, 1_000_008),
        (kind::ALIGNED_ALLOC, 1_000_064),
        (kind::MEMALIGN, 1_000_010),
        (kind::VALLOC, 1_000_011),
        (kind::PVALLOC, 1_000_012),
        (kind::MMAP, 1_003_520),
        (kind::MREMAP, 2_007_040),
        (kind::MMAP, 1_011_712),
        (kind::BRK, 1_015_808),
        (kind::MALLOC, 1_000_013),
    ];
    let events: Vec<_> = capture.events().cloned().collect();
    let big: Vec<_> = events
        .iter()
        .filter(|event| event.kind <= kind::LAST_ALLOCATION && (1_000_000..2_100_000).contains(&event.bytes))
        .collect();
    assert_eq!(big.iter().map(|event| (event.kind, event.bytes)).collect::<Vec<_>>(), expected);
    for event in big {
        let at = events.iter().position(|other| other == event).unwrap();
        let end = events[at + 1..]
            .iter()
            .find(|other| other.address == event.address)
            .expect("its end is recorded");
        assert!(matches!(end.kind, kind::FREE | kind::REALLOC_TAKE | kind::MUNMAP), "{end:?} ends {event:?}");
    }
    let failed: Vec<_> = events.iter().filter(|event| event.kind == kind::FAILED).collect();
    let enomem = libc_enomem();
    assert_eq!(
        failed.iter().map(|event| (event.address & 255, event.address >> 8, event.bytes)).collect::<Vec<_>>(),
        [
            (u64::from(kind::REALLOC), enomem, u64::MAX / 4),
            (u64::from(kind::MALLOC), enomem, u64::MAX / 4 - 16),
            (u64::from(kind::MMAP), enomem, u64::MAX / 4 + 1 - 4096 * 8),
        ]
    );
    assert_eq!(capture.definitions.iter().filter(|(sort, _, _)| *sort == definition::LIMITS).count(), 3);
    assert_eq!(events.iter().filter(|event| event.kind == kind::REALLOC_UNDO).count(), 1);
    assert!(capture.names().contains(&"renamed".to_owned()));
    assert_eq!((capture.state, capture.ended, capture.lost), (state::EXITED, true, 0));
    assert_eq!(capture.flags, flags::PRELOADED);
    assert!(capture.metadata.contains("every_function"), "{}", capture.metadata);
}

#[test]
fn reserved_addresses_are_not_memory() {
    let place = directory();
    let program = compile(place.path(), "reservation", "reservation.c", &[]);
    let output = preloaded(&mut Command::new(program), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let events: Vec<_> = capture(place.path()).events().cloned().collect();
    let mapped: Vec<_> = events.iter().filter(|event| event.kind == kind::MMAP).collect();
    assert_eq!(
        mapped.iter().map(|event| event.bytes).collect::<Vec<_>>(),
        [3 << 20],
        "what could be written to"
    );
    let ends = |event: &&&_| {
        let event: &common::Event = event;
        event.kind == kind::MUNMAP && event.address == mapped[0].address && event.bytes == 3 << 20
    };
    assert_eq!(
        events.iter().filter(|event| ends(&event)).count(),
        1,
        "and was given up by reserving it again"
    );
}

fn libc_enomem() -> u64 {
    12
}

/// Runs a program behind both the hooks and the independent count; what each saw between the marks.
fn both_counts(command: &mut Command, place: &std::path::Path) -> ((u64, u64, u64), (u64, u64, u64)) {
    let shim = compile(place, "libcounting.so", "counting.c", &[]);
    let counted = std::fs::File::create(place.join("counted")).unwrap();
    // The descriptor is handed to the program by number, so it must survive the exec.
    let inherited = counted.try_clone().unwrap();
    command.stdout(Stdio::null()).env("COUNTING_FD", "2").stderr(inherited);
    let output = preloaded_with(command, place, "", &[&shim]);
    assert!(output.status.success(), "{output:?}");
    drop(counted);
    let text = std::fs::read_to_string(place.join("counted")).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().expect(&text)).collect();
    (capture(place).between_marks(), (numbers[0], numbers[1], numbers[2]))
}

#[test]
fn counts_of_threads_equal_an_independent_count() {
    let place = directory();
    let program = compile(place.path(), "threads", "threads.c", &[]);
    let (ours, theirs) = both_counts(Command::new(program).args(["8", "3000"]), place.path());
    assert_eq!(ours, theirs);
    assert!(ours.0 > 8 * 6000);
}

/// Threads that write much get several slots at a time; those they did not begin are free again when they end, for later threads.
#[test]
fn busy_threads_hand_back_the_slots_they_did_not_need() {
    let place = directory();
    let program = compile(place.path(), "threads", "threads.c", &[]);
    let output = preloaded(Command::new(program).args(["104", "9000"]), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!((capture.of_size(300).len(), capture.lost), (104 * 9000, 0));
    let length = capture.path.metadata().unwrap().len();
    assert!(capture.slots > 104 * 2, "{} slots in use", capture.slots);
    assert_eq!(capture.taken, 1, "only the main thread holds a slot at its end");
    let records: usize = capture.streams.values().map(Vec::len).sum();
    assert!(length < 20 * records as u64, "{length} bytes for {records} records: slots are used again");
}

#[test]
fn hundreds_of_threads_share_streams_and_keep_their_names() {
    let place = directory();
    let program = compile(place.path(), "threads", "threads.c", &[]);
    let output = preloaded(Command::new(program).args(["400", "20"]), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!(capture.lost, 0);
    assert_eq!(capture.of_size(700).len(), 400);
    assert_eq!(capture.of_size(300).len(), 400 * 20);
    assert_eq!(capture.of_size(500).len(), 400 * 3, "destructors that allocate after the thread's end began");
    let names = capture.names();
    for worker in 0..400 {
        assert!(names.contains(&format!("worker-{worker}")));
    }
    assert!(capture.streams.len() <= 60, "{} streams for fifty threads at a time", capture.streams.len());
}

#[test]
fn a_forked_child_has_its_own_capture() {
    for how in ["fork", "raw", "exec", "spawn"] {
        let place = directory();
        let program = compile(place.path(), "processes", "processes.c", &[]);
        let output = preloaded(Command::new(program).arg(how), place.path(), "");
        assert!(output.status.success(), "{how}: {output:?}");
        let all = captures(place.path());
        let with =
            |bytes| all.iter().filter(|capture| !capture.of_size(bytes).is_empty()).collect::<Vec<_>>();
        let (parent, child) = (with(2_000_002), with(2_000_001));
        assert_eq!((parent.len(), child.len()), (1, 1), "{how}");
        assert_ne!(parent[0].process, child[0].process, "{how}");
        assert_eq!(parent[0].of_size(2_000_003).len(), 1, "{how}: the parent continues");
        assert!(child[0].of_size(2_000_002).is_empty(), "{how}: the parent's records stay the parent's");
        for capture in &all {
            assert_eq!((capture.lost, capture.state), (0, state::EXITED), "{how}");
        }
    }
}

/// `execl` and its kin take the environment as it is; with one of the program's own, or none left, the child is recorded all the same,
/// unless it says no or the program has taken the one variable out.
#[test]
fn every_way_to_exec_ends_one_recording_and_begins_another() {
    let own = ["own_execle", "own_execve", "own_execvpe", "own_spawn", "empty_execv", "empty_execvp"];
    for how in ["execl", "execlp", "no_execve", "less_execv"].into_iter().chain(own) {
        let place = directory();
        let program = compile(place.path(), "processes", "processes.c", &[]);
        let output = preloaded(Command::new(program).arg(how), place.path(), "");
        assert!(output.status.success(), "{how}: {output:?}");
        let all = captures(place.path());
        let with =
            |bytes| all.iter().filter(|capture| !capture.of_size(bytes).is_empty()).collect::<Vec<_>>();
        let (replaced, child) = (with(2_000_004), with(2_000_001));
        assert_eq!(child.len(), usize::from(!how.starts_with("no_") && !how.starts_with("less_")), "{how}");
        if how != "own_spawn" {
            assert_eq!(replaced.len(), 1, "{how}");
            assert!(child.iter().all(|child| child.process == replaced[0].process), "{how}");
        }
        assert!(all.iter().all(|capture| (capture.lost, capture.state) == (0, state::EXITED)), "{how}");
    }
}

#[test]
fn names_belong_to_the_thread_that_was_named() {
    let place = directory();
    let program = compile(place.path(), "names", "names.c", &[]);
    let output = preloaded(&mut Command::new(program), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let threads: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    let capture = capture(place.path());
    for (thread, bytes, name) in
        [(threads[0], 2_000_001, "from-outside"), (threads[1], 2_000_002, "by-itself")]
    {
        assert_eq!(capture.of_size(bytes)[0].thread, thread);
        let named: Vec<_> = capture
            .definitions
            .iter()
            .filter(|(sort, _, text)| *sort == definition::THREAD_NAME && text == name.as_bytes())
            .collect();
        assert_eq!(named.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(), [thread], "{name}");
    }
}

/// Runs `command` recorded; when it says it is ready, its live file is cut to `length`. Its end, and what the file's header then says.
fn cut(command: &mut Command, place: &std::path::Path, length: u64) -> (std::process::Output, Vec<u8>) {
    prepare(command, place, "", &[]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ready\n");
    let live = place.join(format!("heap-{}.bin.live", child.id()));
    let file = std::fs::File::options().write(true).open(&live).unwrap();
    assert!(file.metadata().unwrap().len() > 300_000);
    file.set_len(length).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    (output, std::fs::read(live).unwrap())
}

fn assert_cut(file: &[u8], how: &str) {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(file[..8], LIVE_MAGIC, "{how}");
    assert_ne!(number(header::FLAGS) & flags::CUT, 0, "{how}: it says that it was cut");
    assert_ne!(number(header::LOST_EVENTS), 0, "{how}");
    assert_eq!(number(header::STATE), state::EXITED, "{how}: the program's own end");
}

#[test]
fn a_capture_that_is_cut_costs_records_not_the_program() {
    for length in [0, 100, 5000, 65_536 + 70_000] {
        for how in ["plain", "sigaction", "signal"] {
            let place = directory();
            let program = compile(place.path(), "cut", "cut.c", &[]);
            let (output, file) = cut(Command::new(program).arg(how), place.path(), length);
            let how = format!("{how}, cut to {length}");
            assert_eq!(output.status.code(), Some(7), "{how}: {output:?}");
            assert_eq!((output.stdout, output.stderr), (b"done\n".to_vec(), Vec::new()), "{how}");
            assert_cut(&file, &how);
        }
    }
}

#[test]
fn a_bus_error_of_the_programs_own_ends_it_as_without_us() {
    use std::os::unix::process::ExitStatusExt;
    let place = directory();
    let program = compile(place.path(), "cut", "cut.c", &[]);
    let (output, file) = cut(Command::new(&program).arg("default"), place.path(), 10_000_000);
    assert_eq!(output.status.signal(), Some(7), "{output:?}");
    assert_eq!(
        u32::from_le_bytes(file[header::FLAGS..header::FLAGS + 4].try_into().unwrap()) & flags::CUT,
        0
    );
    let mut command = Command::new(&program);
    prepare(&mut command, place.path(), "", &[]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert!(Command::new("kill").args(["-BUS", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(7), "one that is sent, too");
}

#[test]
fn a_vfork_child_leaves_the_parent_alone() {
    let place = directory();
    let program = compile(place.path(), "processes", "processes.c", &[]);
    let output = preloaded(Command::new(program).arg("vfork"), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!((capture.of_size(2_000_002).len(), capture.of_size(2_000_003).len()), (1, 1));
}

#[test]
fn exit_without_handlers_is_distinguished_from_a_kill() {
    for (how, end) in [("_exit", state::EXITED), ("quick_exit", state::EXITED), ("abort", state::RUNNING)] {
        let place = directory();
        let program = compile(place.path(), "processes", "processes.c", &[]);
        preloaded(Command::new(program).arg(how), place.path(), "");
        let capture = capture(place.path());
        assert_eq!(capture.state, end, "{how}");
        assert_eq!(capture.of_size(2_000_003).len(), 1, "{how}");
    }
}

#[test]
fn handlers_that_allocate_do_no_harm() {
    let place = directory();
    let program = compile(place.path(), "signals", "signals.c", &[]);
    let output = preloaded(&mut Command::new(program), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!(capture.of_size(48).len(), 200_000);
    assert_eq!(capture.of_size(3_000_001).len(), 10);
    let maps = capture.allocations().filter(|event| event.kind == kind::MMAP && event.bytes == 4096).count();
    let unmaps = capture.events().filter(|event| event.kind == kind::MUNMAP && event.bytes == 4096).count();
    assert!(maps.abs_diff(unmaps) as u64 <= capture.lost + 1, "{maps} {unmaps} {}", capture.lost);
}

#[test]
fn every_allocation_that_returned_is_there_after_a_kill() {
    for wait in [0, 5, 50] {
        let place = directory();
        let program = compile(place.path(), "killed", "killed.c", &[]);
        let mut command = Command::new(program);
        prepare(&mut command, place.path(), "", &[]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut reports = child.stdout.take().unwrap();
        let mut first = [0; 4];
        reports.read_exact(&mut first).unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reports.read_to_end(&mut bytes).unwrap();
            1 + bytes.len() / 4
        });
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        let reported = reader.join().unwrap();
        let capture = capture(place.path());
        let recorded = capture.allocations().filter(|event| (1000..2000).contains(&event.bytes)).count();
        assert!((reported..=reported + 2).contains(&recorded), "{reported} returned, {recorded} recorded");
        assert_eq!((capture.state, capture.ended), (state::RUNNING, false));
    }
}

#[test]
fn a_limit_is_hit_at_the_same_step() {
    let place = directory();
    let program = compile(place.path(), "limited", "limited.c", &[]);
    let bare = Command::new(&program).output().unwrap();
    let recorded = preloaded(&mut Command::new(&program), place.path(), "");
    assert_eq!(String::from_utf8_lossy(&bare.stdout), String::from_utf8_lossy(&recorded.stdout));
    let capture = capture(place.path());
    let failed: Vec<_> = capture.events().filter(|event| event.kind == kind::FAILED).collect();
    assert_eq!(failed.iter().map(|event| event.bytes).collect::<Vec<_>>(), [8 << 20]);
    let limits = capture.definitions.iter().find(|(sort, _, _)| *sort == definition::LIMITS).unwrap();
    let number = |at: usize| u64::from_le_bytes(limits.2[at..at + 8].try_into().unwrap());
    assert_eq!(number(0), 1026 << 20);
    assert!(number(8) > 1 << 29 && number(8) <= number(0), "address space {}", number(8));
    assert!(number(16) > 0 && number(16) < number(8));
}

/// A library that opens another by its own RUNPATH, in a directory.
fn libraries(place: &std::path::Path) -> std::path::PathBuf {
    std::fs::create_dir(place.join("deep")).unwrap();
    compile(&place.join("deep"), "libinner.so", "inner.c", &[]);
    compile(place, "libouter.so", "outer.c", &["-Wl,-rpath,$ORIGIN/deep", "-Wl,--enable-new-dtags"])
}

#[test]
fn libraries_are_found_and_recorded_as_without_the_hooks() {
    let place = directory();
    let outer = libraries(place.path());
    let program = compile(place.path(), "opens", "opens.c", &[]);
    assert!(Command::new(&program).arg(&outer).status().unwrap().success());
    let output = preloaded(Command::new(&program).arg(&outer), place.path(), "");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!((capture.of_size(5_000_002).len(), capture.of_size(5_000_003).len()), (1, 1));
}

#[test]
fn libraries_loaded_while_recording_from_inside_are_patched() {
    let place = directory();
    let outer = libraries(place.path());
    for binding in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        let program = compile(place.path(), "opens", "opens.c", &[binding, "-no-pie"]);
        let options = format!("path={}/inside.bin", place.path().display());
        let status =
            Command::new(&program).arg(&outer).arg(hook()).env("HEAP_OPTIONS", options).status().unwrap();
        assert_eq!(status.code(), Some(0));
        let live = place.path().join("inside.bin.live");
        let capture = common::Capture::read(&live);
        assert_eq!((capture.of_size(5_000_002).len(), capture.of_size(5_000_003).len()), (1, 1));
        assert_eq!((capture.state, capture.flags), (state::STOPPED, 0));
        std::fs::remove_file(live).unwrap();
    }
}

#[test]
fn program_with_many_thread_local_libraries_runs_as_without_the_hooks() {
    const LIBRARIES: usize = 200;
    let place = directory();
    let first = compile(place.path(), "lib0.so", "thread_locals.c", &["-DLIBRARY"]);
    for number in 1..LIBRARIES {
        std::fs::copy(&first, place.path().join(format!("lib{number}.so"))).unwrap();
    }
    let program = compile(place.path(), "thread_locals", "thread_locals.c", &[]);
    for options in ["", ";host=0", ";native=1"] {
        let mut command = Command::new(&program);
        command.arg(place.path()).arg(LIBRARIES.to_string());
        let output = preloaded(&mut command, place.path(), options);
        assert!(output.status.success(), "{options}: {output:?}");
    }
    let found = captures(place.path());
    assert_eq!(found.iter().map(|capture| capture.of_size(5_000_001).len()).sum::<usize>(), 2);
}

/// Another thread looks at a library that is not relocated yet, and thereby at all that is new. It is patched nevertheless, when it is there.
#[test]
fn a_library_seen_half_loaded_by_another_thread_is_patched() {
    let place = directory();
    let other = compile(place.path(), "libinner.so", "inner.c", &[]);
    compile(place.path(), "libslow.so", "half_loaded.c", &["-DSLOW"]);
    let search = format!("-L{0} -Wl,-rpath,{0}", place.path().display());
    for how in ["-Wl,-z,now", "-fno-plt"] {
        let flags: Vec<&str> = ["-DUSES", "-lslow", how].into_iter().chain(search.split(' ')).collect();
        let library = compile(place.path(), "libuses.so", "half_loaded.c", &flags);
        let program = compile(place.path(), "half_loaded", "half_loaded.c", &[]);
        let mut command = Command::new(program);
        command.args([library, other.clone(), hook()]);
        let output = command
            .env("HEAP_OPTIONS", format!("path={}/inside.bin", place.path().display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let live = place.path().join("inside.bin.live");
        let capture = Capture::read(&live);
        assert_eq!((capture.of_size(5_000_001).len(), capture.of_size(5_000_002).len()), (1, 1), "{how}");
        std::fs::remove_file(live).unwrap();
    }
}

#[test]
fn recordings_start_and_stop_while_threads_allocate() {
    let place = directory();
    let program = compile(place.path(), "starts_and_stops", "starts_and_stops.c", &[]);
    let options = format!("path={}/heap-%n.bin", place.path().display());
    let output =
        Command::new(program).arg(hook()).args(["3", "25"]).env("HEAP_OPTIONS", options).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let all = captures(place.path());
    assert_eq!(all.len(), 25);
    for capture in &all {
        assert_eq!((capture.state, capture.lost), (state::STOPPED, 0));
        assert_eq!((capture.of_size(6_000_001).len(), capture.of_size(6_000_002).len()), (1, 0));
    }
}

#[test]
fn a_child_forked_while_recordings_start_and_stop_can_do_so_too() {
    let place = directory();
    let program = compile(place.path(), "forks_while_stopping", "forks_while_stopping.c", &[]);
    let options = |whose: &str| format!("path={}/{whose}-%p-%n.bin", place.path().display());
    let mut command = Command::new(program);
    command
        .arg(hook())
        .arg("100")
        .env("HEAP_OPTIONS", options("parent"))
        .env("CHILD_OPTIONS", options("child"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let all = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let children = all.filter(|path| path.to_str().is_some_and(|path| path.contains("/child-")));
    let mut count = 0;
    for path in children {
        let capture = Capture::read(&path);
        let blocks = capture.of_size(4_000_001).len();
        assert_eq!((capture.state, capture.lost, blocks), (state::STOPPED, 0, 1), "{path:?}");
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn a_child_forked_while_libraries_come_and_go_can_allocate() {
    let place = directory();
    let library = compile(place.path(), "libinner.so", "inner.c", &[]);
    let program = compile(place.path(), "forks_while_opening", "forks_while_opening.c", &[]);
    for options in ["", ";native=1"] {
        let folder = directory();
        let output = preloaded(Command::new(&program).arg(&library).arg("300"), folder.path(), options);
        assert!(output.status.success(), "{output:?}");
        let all = captures(folder.path());
        assert_eq!(all.len(), 301);
        let whole = all.iter().filter(|capture| capture.of_size(4_000_001).len() == 1).count();
        assert_eq!(whole, 300, "each child has its blocks");
    }
}

#[test]
fn another_allocator_stays_in_use() {
    let place = directory();
    let other = compile(place.path(), "libother.so", "other_allocator.c", &[]);
    let program = compile(place.path(), "threads", "threads.c", &[]);
    let output = preloaded_with(Command::new(program).args(["4", "500"]), place.path(), "", &[&other]);
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!(capture.of_size(300).len(), 4 * 500);
    let inside = |event: &&common::Event| (0x6000_0000_0000..0x6100_0000_0000).contains(&event.address);
    assert!(capture.of_size(300).iter().all(inside), "blocks come from the other allocator");
    assert!(
        !capture.allocations().any(|event| event.kind == kind::MMAP),
        "what it maps for itself is not the program's"
    );
}

/// Where they are installed: before this library (which then leaves the program alone) and behind it.
#[test]
fn well_known_allocators_work_before_and_behind() {
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let path = std::path::Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        if !path.exists() {
            continue;
        }
        let place = directory();
        let program = compile(place.path(), "threads", "threads.c", &[]);
        let output =
            preloaded_with(Command::new(&program).args(["4", "500"]), place.path(), ";native=1", &[&path]);
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(capture(place.path()).of_size(300).len(), 4 * 500, "{name}");
        let mut preload = path.into_os_string();
        preload.push(" ");
        preload.push(common::hook());
        let output = Command::new(&program)
            .args(["4", "500"])
            .env("LD_PRELOAD", preload)
            .env("STORMLOG_HEAP", format!("path={}/other-%p.bin", place.path().display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{name} before: {output:?}");
    }
}

#[test]
fn a_full_disk_costs_records_not_the_program() {
    let place = directory();
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return; // needs the right to mount
    }
    let program = compile(place.path(), "threads", "threads.c", &[]);
    let output = preloaded(Command::new(program).args(["4", "100000"]), &disk, "");
    let capture = captures(&disk).pop();
    Command::new("umount").arg(&disk).status().unwrap();
    assert!(output.status.success(), "{output:?}");
    let capture = capture.expect("a capture of what fitted");
    assert!(capture.lost > 100_000, "{} lost", capture.lost);
    assert!(capture.of_size(300).len() > 1000);
}

/// The kernel would end the program (SIGXFSZ) for a file that grows beyond its limit.
#[test]
fn a_limit_on_files_costs_records_not_the_program() {
    for (blocks, least) in [(0, None), (200, Some(0)), (2000, Some(1000))] {
        let place = directory();
        let program = compile(place.path(), "threads", "threads.c", &[]);
        let script = format!("ulimit -f {blocks}; exec \"$0\" 4 20000");
        let output = preloaded(Command::new("sh").args(["-c", &script]).arg(program), place.path(), "");
        assert!(output.status.success(), "{blocks} blocks: {output:?}");
        // The first is the shell's, which had no limit when it began. Nothing is left of a capture that could not begin.
        let program = captures(place.path()).into_iter().nth(1);
        let recorded = program.as_ref().map(|capture| capture.of_size(300).len());
        assert!(recorded >= least && recorded.is_some() == least.is_some(), "{blocks} blocks: {recorded:?}");
        assert!(
            program.is_none_or(|capture| capture.lost > 0),
            "{blocks} blocks: what did not fit is counted"
        );
    }
}

#[test]
fn without_a_place_to_write_nothing_happens() {
    let place = directory();
    let program = compile(place.path(), "threads", "threads.c", &[]);
    for options in ["path=/nonexistent/heap.bin", "path=", "colour=red", ""] {
        let output = Command::new(&program)
            .args(["2", "10"])
            .env("LD_PRELOAD", hook())
            .env("STORMLOG_HEAP", options)
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{options}: {output:?}");
    }
    assert!(captures(place.path()).is_empty());
}

#[test]
fn a_capture_is_never_overwritten() {
    let place = directory();
    let program = compile(place.path(), "threads", "threads.c", &[]);
    std::fs::write(place.path().join("heap.bin"), "finished").unwrap();
    for _ in 0..3 {
        let status = Command::new(&program)
            .args(["1", "1"])
            .env("LD_PRELOAD", hook())
            .env("STORMLOG_HEAP", format!("path={}/heap.bin", place.path().display()))
            .status()
            .unwrap();
        assert!(status.success());
    }
    assert_eq!(std::fs::read(place.path().join("heap.bin")).unwrap(), b"finished");
    assert!(!place.path().join("heap.bin.live").exists());
    assert_eq!(captures(place.path()).len(), 3);
}

#[test]
fn native_stacks_lead_into_the_program_and_its_modules() {
    let place = directory();
    let outer = libraries(place.path());
    let program = compile(place.path(), "opens", "opens.c", &[]);
    let output = preloaded(Command::new(&program).arg(&outer), place.path(), ";native=1");
    assert!(output.status.success(), "{output:?}");
    let capture = capture(place.path());
    assert_eq!(capture.flags, flags::PRELOADED | flags::NATIVE);
    let modules = capture.modules();
    let module_of = |address: u64| {
        let found = modules.iter().find(|(start, end, _)| (*start..*end).contains(&address));
        found.map_or("?", |(_, _, path)| path.rsplit('/').next().unwrap())
    };
    let inner = &capture.of_size(5_000_002)[0];
    let stack: Vec<_> = capture.native_stack(inner.native).into_iter().map(module_of).collect();
    assert_eq!(stack[..3], ["libinner.so", "libouter.so", "opens"], "{stack:?}");
    assert!(stack[3..].iter().all(|module| *module == "libc.so.6" || *module == "opens"), "{stack:?}");
    let gone = capture.definitions.iter().filter(|(sort, _, _)| *sort == definition::MODULE_GONE).count();
    assert_eq!(gone, 1, "libinner.so was closed");
}
