//! Labelled memory traces, made from seeds: leaks of many shapes and healthy programs of many shapes.
//!
//! Each kind draws its sizes, pace, noise and length from the seed, so that one kind is many traces. Nothing here knows how
//! the rules decide.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses the part it needs, and stops at what cannot be"
)]

const MIB: f64 = 1_048_576.0;

/// A trace with what a person would call it.
pub struct Trace {
    pub name: String,
    pub leaks: bool,
    /// Nanoseconds and bytes.
    pub samples: Vec<(u64, u64)>,
}

/// Small, fast and the same everywhere (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Sizes spread over orders of magnitude.
    pub fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }

    /// Roughly normal, deviation 1.
    pub fn noise(&mut self) -> f64 {
        (0..6).map(|_| self.unit()).sum::<f64>() * std::f64::consts::SQRT_2 - 3.0 * std::f64::consts::SQRT_2
    }
}

/// What a kind may use: progress 0..1, step number, and the seed's numbers.
struct Draw {
    base: f64,
    /// Size of whatever the kind does, in MiB.
    size: f64,
    period: f64,
    a: f64,
    b: f64,
    jitter: f64,
}

type Make = fn(f64, &Draw, &mut Random, &mut f64) -> f64;

const LEAKS: &[(&str, Make)] = &[
    ("linear", |x, d, _, _| d.base + d.size * x),
    ("linear_noisy", |x, d, r, _| d.base + d.size * x + 0.05 * d.size * r.noise()),
    ("saw_on_a_slope", |x, d, _, _| d.base + d.size * x + d.size * (0.2 + d.a) * saw(x, d.period)),
    ("saw_with_few_teeth_on_a_slope", |x, d, _, _| {
        d.base + d.size * x + 0.6 * d.size * saw(x, 7.0 + 6.0 * d.a)
    }),
    ("small_leak_under_big_teeth", |x, d, r, _| {
        d.base + d.size * x + 2.0 * d.size * saw(x, 20.0 + d.period) + 0.01 * d.size * r.noise()
    }),
    ("steps", |x, d, _, _| d.base + d.size / 6.0 * (x * (6.0 + 6.0 * d.a)).floor()),
    ("steps_noisy", |x, d, r, _| {
        d.base + d.size / 6.0 * (x * (7.0 + 8.0 * d.a)).floor() + 0.01 * d.size * r.noise()
    }),
    ("accelerating", |x, d, _, _| d.base + d.size * x * x),
    ("exponential", |x, d, r, _| {
        d.base + d.size * ((3.0 * x).exp() - 1.0) / 19.0 + 0.005 * d.size * r.noise()
    }),
    ("after_warm_up", |x, d, r, _| {
        d.base + 0.5 * d.size * (1.0 - (-x * 30.0).exp()) + d.size * x + 0.02 * d.size * r.noise()
    }),
    ("late", |x, d, r, _| {
        d.base + 1.5 * d.size * (x - 0.35 - 0.2 * d.a).max(0.0) + 0.003 * d.size * r.noise()
    }),
    ("random_allocations_kept", |_, d, r, kept| {
        if r.unit() < 0.2 {
            *kept += r.unit() * d.size / 20.0;
        }
        d.base + *kept
    }),
    ("kept_each_cycle", |x, d, r, _| {
        let cycles = 8.0 + d.period;
        d.base
            + d.size * (x * cycles).floor() / cycles
            + d.size * 0.5 * saw(x, cycles)
            + 0.01 * d.size * r.noise()
    }),
    ("sine_on_a_slope", |x, d, _, _| d.base + d.size * x + 0.15 * d.size * (x * d.period * 6.0).sin()),
    ("spikes_on_a_slope", |x, d, r, _| {
        d.base + d.size * x + if r.unit() < 0.05 { d.size * r.unit() } else { 0.0 }
    }),
    ("square_root", |x, d, r, _| d.base + d.size * x.sqrt() + 0.004 * d.size * r.noise()),
    ("leak_with_partial_releases", |x, d, _, kept| {
        let phase = (x * 5.0).floor();
        *kept = kept.max(phase);
        d.base + d.size * x - 0.05 * d.size * phase
    }),
    ("pool_in_big_chunks", |x, d, _, _| d.base + (d.size * x / (d.size / 12.0)).floor() * d.size / 12.0),
    ("slow_and_clean", |x, d, _, _| d.base * (1.0 + 0.04 * x) + d.size * 0.2 * x),
    ("busy_then_idle_then_busy", |x, d, _, _| {
        // Leaks only while it works: half of ten stretches.
        let part = x * 10.0;
        let worked =
            (part.floor() / 2.0).ceil() + if part.floor() as i64 % 2 == 0 { part.fract() } else { 0.0 };
        d.base + d.size * worked / 5.0
    }),
    ("noisy_teeth_on_a_slope", |x, d, r, _| {
        d.base + d.size * x + d.size * 0.4 * saw(x, 12.0 + d.period) * (0.6 + 0.4 * r.unit())
    }),
    ("after_a_large_load", |x, d, r, _| {
        let loaded = (x * (8.0 + 8.0 * d.a)).min(1.0);
        d.base + (2.0 + 3.0 * d.b) * d.size * loaded + d.size * x + 0.01 * d.size * r.noise()
    }),
    ("after_a_load_that_needed_more", |x, d, _, _| {
        let loading = if x < 0.1 + 0.1 * d.a { 3.0 * d.size * x * 5.0 } else { d.size };
        d.base + loading + 0.5 * d.size * x
    }),
    ("let_go_at_the_end", |x, d, _, _| d.base + if x < 0.975 + 0.02 * d.a { d.size * x } else { 0.0 }),
    ("cache_then_leak", |x, d, _, _| {
        d.base + 0.7 * d.size * (x * 8.0).min(1.0) + d.size * (x - 0.2).max(0.0)
    }),
];

const HEALTHY: &[(&str, Make)] = &[
    ("flat", |_, d, _, _| d.base + d.size),
    ("flat_noisy", |_, d, r, _| d.base + d.size + 0.03 * (d.base + d.size) * r.noise()),
    ("saw", |x, d, _, _| d.base + d.size * saw(x, 5.0 + d.period)),
    ("saw_with_few_teeth", |x, d, _, _| d.base + d.size * saw(x, 2.3 + 2.0 * d.a)),
    ("saw_of_two_sizes", |x, d, _, _| {
        d.base + d.size * saw(x, 60.0) * 0.2 + d.size * saw(x, 6.0 + 4.0 * d.a)
    }),
    ("noisy_saw", |x, d, r, _| d.base + d.size * saw(x, 5.0 + d.period) + 0.05 * d.size * r.noise()),
    ("irregular_teeth", |_, d, r, kept| {
        *kept = if r.unit() < 0.04 { 0.0 } else { *kept + 0.03 * r.unit() };
        d.base + d.size * *kept
    }),
    ("load_then_noise", |x, d, r, _| {
        d.base + 4.0 * d.size * (x * (8.0 + 8.0 * d.a)).min(1.0) + 0.05 * d.size * r.noise()
    }),
    ("load_then_saw", |x, d, _, _| {
        d.base + 2.0 * d.size * (x * 10.0).min(1.0) + d.size * 0.3 * saw(x, 3.0 + d.period)
    }),
    ("load_in_two_parts", |x, d, r, _| {
        d.base + d.size * ((x * 10.0).min(1.0) + (x * 2.0).min(1.0)) + 0.003 * d.size * r.noise()
    }),
    ("warm_up", |x, d, _, _| d.base + d.size * (1.0 - (-x * (8.0 + 12.0 * d.a)).exp())),
    ("warm_up_noisy", |x, d, r, _| {
        d.base + d.size * (1.0 - (-x * (8.0 + 12.0 * d.a)).exp()) + 0.02 * d.size * r.noise()
    }),
    ("ramp_then_flat", |x, d, r, _| {
        d.base + d.size * (x / (0.2 + 0.3 * d.a)).min(1.0) + 0.003 * d.size * r.noise()
    }),
    ("ramp_most_of_the_time_then_flat", |x, d, r, _| {
        d.base + d.size * (x / (0.55 + 0.15 * d.a)).min(1.0) + 0.003 * d.size * r.noise()
    }),
    ("one_step", |x, d, _, _| d.base + if x > 0.2 + 0.6 * d.a { d.size } else { 0.0 }),
    ("two_steps", |x, d, r, _| {
        let steps = f64::from(u8::from(x > 0.15 + 0.2 * d.a)) + f64::from(u8::from(x > 0.5 + 0.2 * d.b));
        d.base + 0.5 * d.size * steps + 0.003 * d.size * r.noise()
    }),
    ("three_quick_steps_at_the_start", |x, d, r, _| {
        d.base + d.size * (x * 20.0).floor().min(3.0) / 3.0 + 0.003 * d.size * r.noise()
    }),
    ("spikes", |_, d, r, _| d.base + if r.unit() < 0.04 { d.size * r.unit() } else { 0.0 }),
    ("shrinking", |x, d, r, _| d.base + d.size * (1.0 - x) + 0.02 * d.size * r.noise()),
    ("wandering_but_bounded", |_, d, r, kept| {
        *kept = 0.9 * *kept + 0.1 * r.noise();
        d.base + d.size + 0.05 * (d.base + d.size) * *kept
    }),
    ("square_wave", |x, d, _, _| d.base + if saw(x, 3.0 + d.period / 4.0) > 0.5 { d.size } else { 0.0 }),
    ("sine", |x, d, _, _| d.base + d.size * (1.0 + (x * (3.0 + d.period) * std::f64::consts::TAU).sin())),
    ("climbs_and_gives_back", |x, d, _, _| {
        d.base + if x < 0.75 + 0.15 * d.a { d.size * x } else { 0.02 * d.size }
    }),
    ("epochs_with_validation", |x, d, r, _| {
        let epoch = saw(x, 6.0 + 6.0 * d.a);
        d.base + d.size * 0.4 + if epoch > 0.8 { d.size * 0.5 } else { 0.03 * d.size * r.unit() }
    }),
    ("warm_up_then_saw", |x, d, _, _| {
        d.base + d.size * (1.0 - (-x * 25.0).exp()) + 0.5 * d.size * saw(x, 12.0 + d.period)
    }),
    ("cache_that_fills", |x, d, _, _| d.base + d.size * (4.0 * x).min(1.0) + 0.1 * d.size * saw(x, 40.0)),
    ("batches_of_random_size", |_, d, r, _| d.base + d.size * r.unit()),
    ("tiny_drift", |x, d, r, _| d.base + 500.0 + x * 1.5 + 0.2 * r.noise()),
    ("teeth_that_get_taller", |x, d, _, _| d.base + d.size * (0.3 + 0.7 * x) * saw(x, 12.0 + d.period)),
];

fn saw(x: f64, teeth: f64) -> f64 {
    (x * teeth).fract()
}

/// How many samples a trace may have.
#[derive(Clone, Copy)]
pub struct Length(pub f64, pub f64);

/// From minutes at ten samples a second to days at one every half minute.
pub const LONG: Length = Length(200.0, 5000.0);
/// A test run, or a recording that was just begun.
pub const SHORT: Length = Length(60.0, 200.0);

/// One trace of every kind for this seed.
pub fn all(seed: u64, length: Length) -> Vec<Trace> {
    let kinds = LEAKS.iter().map(|kind| (kind, true)).chain(HEALTHY.iter().map(|kind| (kind, false)));
    kinds
        .enumerate()
        .map(|(number, ((name, make), leaks))| {
            let mut random = Random::new(seed.wrapping_mul(1009).wrapping_add(number as u64));
            Trace { name: format!("{name}#{seed}"), leaks, samples: one(*make, length, &mut random) }
        })
        .collect()
}

/// Traces of real programs: processes watched by `stormlog run`, and the allocator's own history of training runs.
pub fn recorded() -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    for line in include_str!("recorded.csv").lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [name, leaks, at, bytes] = cells[..] else { panic!("{line}") };
        if traces.last().is_none_or(|last| last.name != name) {
            traces.push(Trace { name: name.to_owned(), leaks: leaks == "1", samples: Vec::new() });
        }
        let sample = (at.parse().unwrap(), bytes.parse().unwrap());
        traces.last_mut().unwrap().samples.push(sample);
    }
    traces
}

fn one(make: Make, length: Length, random: &mut Random) -> Vec<(u64, u64)> {
    let draw = Draw {
        base: random.magnitude(50.0, 8000.0),
        size: random.magnitude(200.0, 12_000.0),
        period: random.between(0.0, 40.0),
        a: random.unit(),
        b: random.unit(),
        jitter: random.between(0.0, 0.4),
    };
    let count = random.magnitude(length.0, length.1) as usize;
    let interval = random.magnitude(0.01, 30.0) * 1e9;
    // Some recorders pause: a stretch of up to a fifth of the time is missing.
    let pause = (random.unit() < 0.3).then(|| (random.unit(), random.between(0.02, 0.2)));
    let start = 1_700_000_000_000_000_000_u64;
    let mut kept = 0.0;
    let mut samples = Vec::with_capacity(count);
    for index in 0..count {
        let x = index as f64 / count as f64;
        let value = make(x, &draw, random, &mut kept);
        let wobble = draw.jitter * (random.unit() - 0.5);
        if pause.is_some_and(|(from, length)| x > from && x < from + length) {
            continue;
        }
        let at = start + ((index as f64 + 0.5 + wobble) * interval) as u64;
        samples.push((at, (value.max(1.0) * MIB) as u64));
    }
    samples
}
