//! Messages of kernels from 3.10 to 6.18. Seven cases carry lines that real kernels wrote, two of them completed by hand;
//! the host kills, the cpuset, the hostile name and the allocating task were put together from the kernel's formats.

use super::*;

fn kills(lines: &[&str]) -> Vec<OomKill> {
    let mut parser = OomParser::default();
    lines.iter().filter_map(|line| parser.line(Some(1), line)).collect()
}

/// What must come out: pid, name, constraint, cgroup, rss in KiB.
type Expected = (u32, &'static str, Option<Constraint>, Option<&'static str>, Option<u64>);

const REAL: [(&str, &[&str], Expected); 12] = [
    (
        "3.10 (CentOS 7), kubernetes#56891",
        &[
            "java invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=-998",
            "[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name",
            "[28438]     0 28438  5063909   119961    1661   136409          -998 java",
            "Memory cgroup out of memory: Kill process 24572 (java) score 0 or sacrifice child",
            "Killed process 28438 (java) total-vm:20255636kB, anon-rss:466160kB, file-rss:13684kB",
        ],
        (28438, "java", Some(Constraint::Memcg), None, Some(479_844)),
    ),
    (
        "3.10.0-1160 (CentOS 7.9), ltp#1080",
        &[
            "Task in /13 killed as a result of limit of /13",
            "memory: usage 4kB, limit 4kB, failcnt 8",
            "memory+swap: usage 4kB, limit 9007199254740988kB, failcnt 0",
            "Memory cgroup out of memory: Kill process 42452 (memcg_test_1) score 0 or sacrifice child",
            "Killed process 42452 (memcg_test_1), UID 0, total-vm:7296kB, anon-rss:96kB, file-rss:164kB, shmem-rss:0kB",
        ],
        (42452, "memcg_test_1", Some(Constraint::Memcg), Some("/13"), Some(260)),
    ),
    (
        "4.14, kata-containers/runtime#1310 (form), docker",
        &[
            "mem invoked oom-killer: gfp_mask=0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null),  order=0, oom_score_adj=0",
            "Task in /docker/609e7ec0 killed as a result of limit of /docker/609e7ec0",
            "memory: usage 524288kB, limit 524288kB, failcnt 34",
            "Memory cgroup out of memory: Kill process 93 (mem) score 994 or sacrifice child",
            "Killed process 93 (mem) total-vm:523960kB, anon-rss:520312kB, file-rss:4kB, shmem-rss:0kB",
        ],
        (93, "mem", Some(Constraint::Memcg), Some("/docker/609e7ec0"), Some(520_316)),
    ),
    (
        "4.x, the whole host, old form",
        &[
            "python invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0",
            "Out of memory: Kill process 3218 (python) score 812 or sacrifice child",
            "Killed process 3218 (python) total-vm:8124444kB, anon-rss:7012340kB, file-rss:0kB",
        ],
        (3218, "python", Some(Constraint::None), None, Some(7_012_340)),
    ),
    (
        "5.4, docker/for-linux#1001: rate limited, nothing before it; the name has parentheses",
        &[
            "Out of memory: Killed process 15925 ((resolved)) total-vm:168424kB, anon-rss:4064kB, file-rss:3584kB, shmem-rss:0kB",
        ],
        (15925, "(resolved)", Some(Constraint::None), None, Some(7648)),
    ),
    (
        "5.4.0-77 (Ubuntu), reportportal/kubernetes#203",
        &[
            "uwsgi invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
            "Memory cgroup out of memory: Killed process 63214 (uwsgi) total-vm:3149468kB, anon-rss:164992kB, file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986",
            "oom_reaper: reaped process 63214 (uwsgi), now anon-rss:0kB, file-rss:0kB, shmem-rss:92kB",
        ],
        (63214, "uwsgi", Some(Constraint::Memcg), None, Some(217_260)),
    ),
    (
        "5.15+, leptonai/gpud#70 (constraint line), kill line of the same form",
        &[
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-ec9e.scope,mems_allowed=0-1,oom_memcg=/lxc.payload.ny2g2r5hh3-lxc/kubepods.slice/kubepods-burstable.slice,task_memcg=/lxc.payload.ny2g2r5hh3-lxc/kubepods.slice/kubepods-burstable.slice/cri-containerd-ec9e.scope,task=pt_main_thread,pid=461754,uid=0",
            "Memory cgroup out of memory: Killed process 461754 (pt_main_thread) total-vm:41234564kB, anon-rss:15982340kB, file-rss:264000kB, shmem-rss:1024kB, UID:0 pgtables:40000kB oom_score_adj:-997",
        ],
        (
            461_754,
            "pt_main_thread",
            Some(Constraint::Memcg),
            Some("/lxc.payload.ny2g2r5hh3-lxc/kubepods.slice/kubepods-burstable.slice"),
            Some(16_247_364),
        ),
    ),
    (
        "6.x, the whole host",
        &[
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=user.slice,mems_allowed=0,global_oom,task_memcg=/user.slice/user-1000.slice/session-3.scope,task=python3,pid=9911,uid=1000",
            "Out of memory: Killed process 9911 (python3) total-vm:66123456kB, anon-rss:60123456kB, file-rss:128kB, shmem-rss:0kB, UID:1000 pgtables:118000kB oom_score_adj:0",
        ],
        (9911, "python3", Some(Constraint::None), None, Some(60_123_584)),
    ),
    (
        "a cpuset ran out",
        &[
            "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=job7,mems_allowed=1,global_oom,task_memcg=/,task=a,pid=5,uid=0",
            "Out of memory: Killed process 5 (a) total-vm:10kB, anon-rss:5kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
        ],
        (5, "a", Some(Constraint::Cpuset), None, Some(5)),
    ),
    (
        "a name that tries to look like the rest of the line",
        &[
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,b,task_memcg=/a,b/c,task=,pid=1,uid=0,pid=77,uid=5",
            "Memory cgroup out of memory: Killed process 77 () total-vm:1kB) total-vm:100kB, anon-rss:50kB, file-rss:0kB, shmem-rss:0kB, UID:5 pgtables:1kB oom_score_adj:0",
        ],
        (77, ") total-vm:1kB", Some(Constraint::Memcg), Some("/a,b"), Some(50)),
    ),
    (
        "oom_kill_allocating_task",
        &[
            "Out of memory (oom_kill_allocating_task): Killed process 8 (x) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
        ],
        (8, "x", Some(Constraint::None), None, Some(1)),
    ),
    (
        "6.18, this crate's own test: a thread asks, its process is killed",
        &[
            "child_program invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            "CPU: 0 UID: 0 PID: 20507 Comm: child_program Not tainted 6.18.44-fc-v490 #1 PREEMPT(none) ",
            "memory: usage 65536kB, limit 65536kB, failcnt 82",
            "memory+swap: usage 65536kB, limit 9007199254740988kB, failcnt 0",
            "Memory cgroup stats for /stormlog-collect-kill-20501:",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/stormlog-collect-kill-20501,task_memcg=/stormlog-collect-kill-20501/inner,task=cgroups-b6706df,pid=20505,uid=0",
            "Memory cgroup out of memory: Killed process 20505 (cgroups-b6706df) total-vm:137328kB, anon-rss:65536kB, file-rss:2652kB, shmem-rss:0kB, UID:0 pgtables:184kB oom_score_adj:0",
        ],
        (
            20505,
            "cgroups-b6706df",
            Some(Constraint::Memcg),
            Some("/stormlog-collect-kill-20501"),
            Some(68188),
        ),
    ),
];

#[test]
fn real_messages_are_understood() {
    for (origin, lines, (pid, comm, constraint, cgroup, rss)) in REAL {
        let found = kills(lines);
        assert_eq!(found.len(), 1, "{origin}");
        let kill = &found[0];
        assert_eq!((kill.pid, kill.comm.as_str()), (pid, comm), "{origin}");
        assert_eq!(kill.constraint, constraint, "{origin}");
        assert_eq!(kill.cgroup.as_deref(), cgroup, "{origin}");
        assert_eq!(kill.rss(), rss.map(|kib| kib * 1024), "{origin}");
    }
}

#[test]
fn limits_and_users_are_read() {
    let kill = kills(REAL[1].1).remove(0);
    assert_eq!((kill.usage, kill.limit, kill.uid), (Some(4096), Some(4096), Some(0)));
    let kill = kills(REAL[7].1).remove(0);
    assert_eq!(kill.uid, Some(1000));
    assert_eq!(kill.oom_score_adj, Some(0));
    assert_eq!(kill.task_cgroup.as_deref(), Some("/user.slice/user-1000.slice/session-3.scope"));
    assert_eq!(kills(REAL[6].1).remove(0).oom_score_adj, Some(-997));
    assert_eq!(kills(REAL[9].1).remove(0).uid, Some(5));
}

#[test]
fn a_kill_without_its_own_lines_does_not_inherit_those_of_another() {
    let found = kills(&[
        REAL[6].1[0],
        REAL[6].1[1],
        "Memory cgroup out of memory: Killed process 2 (b) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    ]);
    assert_eq!(found.len(), 2);
    assert_eq!((found[1].cgroup.as_deref(), found[1].constraint), (None, Some(Constraint::Memcg)));
    // And when the lines name another process.
    let found = kills(&[REAL[6].1[0], REAL[5].1[1]]);
    assert_eq!((found[0].pid, found[0].cgroup.as_deref()), (63214, None));
}

#[test]
fn a_group_shares_its_cause() {
    let found = kills(&[
        "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg=/j,task=a,pid=10,uid=0",
        "Memory cgroup out of memory: Killed process 10 (a) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0",
        "Tasks in /j are going to be killed due to memory.oom.group set",
        "Memory cgroup out of memory: Killed process 10 (a) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0",
        "Memory cgroup out of memory: Killed process 11 (b) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0",
    ]);
    assert_eq!(found.len(), 3);
    assert_eq!((found[2].pid, found[2].cgroup.as_deref(), found[2].uid), (11, Some("/j"), Some(0)));
    let mut parser = OomParser::default();
    parser.line(Some(1), REAL[6].1[0]);
    parser.line(Some(1), REAL[6].1[1]);
    parser.line(Some(1), "Tasks in /j are going to be killed due to memory.oom.group set");
    let late = parser.line(Some(9_000_000), REAL[5].1[1]).unwrap();
    assert_eq!(late.cgroup, None);
}

#[test]
fn unrelated_lines_are_ignored() {
    for line in [
        "systemd: Killed process 5 (x) total-vm:1kB",
        "Killed process",
        "Killed process x (y) total-vm:1kB",
        "",
    ] {
        assert!(kills(&[line]).is_empty(), "{line}");
    }
}
