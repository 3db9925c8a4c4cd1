//! Pictures as files: every kind of panel as SVG, PNG and page, with what callers could get wrong.
//!
//! `STORMLOG_PLOT_DIR=DIR` keeps the pictures, to be looked at.
#![allow(clippy::unwrap_used, reason = "a test stops at what cannot be")]

use stormlog_render::plot::{
    Axis, Bars, Content, Dot, Figure, Heat, Lines, Mark, MarkKind, Measure, Panel, Phase, Points, Rule,
    Series,
};

const GI: f64 = 1_073_741_824.0;

fn memory() -> Axis {
    Axis::new("Memory", Measure::Bytes)
}

fn time() -> Axis {
    Axis::new("Time since the start", Measure::Seconds)
}

fn series(name: &str, of: impl Fn(f64) -> f64) -> Series {
    let points = (0..1200).map(|i| (f64::from(i) * 0.25, of(f64::from(i) * 0.25))).collect();
    Series { name: name.into(), points, ..Series::default() }
}

fn timeline() -> Figure {
    let lines = Lines {
        series: vec![
            series("allocated", |t| (8.0 + 0.12 * t + 6.0 * (t % 20.0) / 20.0) * GI),
            series("reserved", |t| (20.0 + 0.12 * t) * GI),
            series("device used", |t| (23.0 + 0.14 * t) * GI),
        ],
        limit: Some(Rule { name: "limit 80 GiB".into(), at: 80.0 * GI }),
        phases: (0..3)
            .flat_map(|epoch| {
                let start = f64::from(epoch) * 100.0;
                [
                    Phase { name: "train".into(), from: start, to: start + 80.0 },
                    Phase { name: "evaluate".into(), from: start + 80.0, to: start + 100.0 },
                ]
            })
            .collect(),
        marks: vec![
            Mark { name: "warning: memory usage at 80 %".into(), at: 250.0, kind: MarkKind::Warning },
            Mark { name: "warning: memory usage at 80 %".into(), at: 250.5, kind: MarkKind::Warning },
            Mark { name: "out of memory".into(), at: 299.0, kind: MarkKind::Critical },
        ],
        ..Lines::default()
    };
    let panel =
        Panel { title: "GPU 0, pid 4711".into(), x: time(), y: memory(), content: Content::Lines(lines) };
    Figure {
        title: "Memory over time".into(),
        subtitle: "run train-1".into(),
        columns: 1,
        panels: vec![panel],
    }
}

fn ranks(columns: usize) -> Figure {
    let rank =
        |rank: u32| series(&format!("rank {rank}"), move |t| (10.0 + f64::from(rank) * 0.1 + 0.02 * t) * GI);
    let panels = if columns > 1 {
        (0..16)
            .map(|number| Panel {
                title: format!("rank {number}"),
                x: time(),
                y: Axis { end: Some(20.0 * GI), ..memory() },
                content: Content::Lines(Lines { series: vec![rank(number)], ..Lines::default() }),
            })
            .collect()
    } else {
        let lines = Lines {
            series: (0..64).map(rank).collect(),
            moments: vec![Rule { name: "cluster onset".into(), at: 120.0 }],
            dots: vec![Dot { name: "rank 17 first".into(), x: 118.0, y: 14.0 * GI }],
            ..Lines::default()
        };
        vec![Panel { x: time(), y: memory(), content: Content::Lines(lines), ..Panel::default() }]
    };
    Figure { title: "Ranks".into(), columns, panels, ..Figure::default() }
}

fn dashboard() -> Figure {
    let names: Vec<String> = ["forward", "backward", "model.transformer.layers.31.attention.forward", "step"]
        .map(str::to_owned)
        .into();
    let bars =
        Bars { names: names.clone(), values: vec![1.5 * GI, 3.25 * GI, 0.004 * GI, 0.0], edges: vec![] };
    let edges: Vec<f64> = (0..=20).map(|i| f64::from(i) * 0.1 * GI).collect();
    let counts = (0..20).map(|i| f64::from((i * 7) % 13)).collect();
    let histogram = Bars { names: vec![], values: counts, edges };
    let dots = (0..200).map(|i| (f64::from(i) * 0.002, f64::from((i * 37) % 100) * 0.03 * GI)).collect();
    let panel = |title: &str, x, y, content| Panel { title: title.into(), x, y, content };
    let mut first = timeline().panels.remove(0);
    first.title = "Memory over time".into();
    Figure {
        title: "GPU memory profiling dashboard".into(),
        subtitle: String::new(),
        columns: 2,
        panels: vec![
            first,
            panel("Average memory by function", Axis::default(), memory(), Content::Bars(bars)),
            panel(
                "How much calls allocated",
                memory(),
                Axis::new("Calls", Measure::Number),
                Content::Bars(histogram),
            ),
            panel(
                "Time and peak",
                Axis::new("Execution time", Measure::Seconds),
                Axis::new("Peak", Measure::Bytes),
                Content::Points(Points { points: dots, labels: vec![] }),
            ),
        ],
    }
}

fn heat() -> Figure {
    let shares: Vec<Vec<f64>> =
        (0..6).map(|row| (0..4).map(|column| f64::from(row * column) / 15.0).collect()).collect();
    let texts = shares.iter().map(|row| row.iter().map(|share| format!("{share:.2}")).collect()).collect();
    let content = Heat {
        rows: (0..6).map(|row| format!("function_{row}")).collect(),
        columns: ["time (s)", "allocated (GiB)", "freed (GiB)", "peak (GiB)"].map(str::to_owned).into(),
        shares,
        texts,
        scale: Some(("least of its column".into(), "most".into())),
    };
    let panel = Panel { content: Content::Heat(content), ..Panel::default() };
    Figure { title: "Functions".into(), panels: vec![panel], ..Figure::default() }
}

fn hostile() -> Figure {
    let mut figure = timeline();
    figure.title = "</title><script>alert(1)</script>\u{0}".into();
    if let Content::Lines(lines) = &mut figure.panels[0].content {
        lines.series[0].name = "\"><script>alert(2)</script>".into();
        lines.series[0].colour = Some("red\"/><script>".into());
        lines.series[0].points[5].1 = f64::NAN;
        lines.series[1].points[7].0 = f64::INFINITY;
        lines.limit = Some(Rule { name: "no number".into(), at: f64::NAN });
        lines.phases.push(Phase { name: "日本語".into(), from: f64::NAN, to: 3.0 });
        lines.phases.push(Phase { name: "back to front".into(), from: 30.0, to: 3.0 });
        lines.marks.push(Mark { name: "m".repeat(5000), at: f64::NEG_INFINITY, kind: MarkKind::Note });
    }
    figure
}

fn keep(name: &str, figure: &Figure) {
    let svg = figure.svg();
    let png = figure.png(1.5).unwrap();
    let page = figure.page();
    if let Some(folder) = std::env::var_os("STORMLOG_PLOT_DIR").map(std::path::PathBuf::from) {
        std::fs::write(folder.join(format!("{name}.svg")), &svg).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), &png).unwrap();
        std::fs::write(folder.join(format!("{name}.html")), &page).unwrap();
    }
    assert!(
        svg.starts_with("<svg ")
            && svg.ends_with("</svg>\n")
            && !svg.contains("NaN")
            && !svg.contains("inf ")
    );
    assert!(page.contains("id=\"data\""));
    let (width, height, ink) = pixels(&png);
    assert!(width >= 1800 && height >= 300 && ink > 2000, "{name}: {width}x{height}, {ink} dark pixels");
}

/// Size and number of dark pixels of a PNG.
fn pixels(png: &[u8]) -> (u32, u32, usize) {
    let picture = tiny_skia::Pixmap::decode_png(png).unwrap();
    let dark = picture.pixels().iter().filter(|pixel| pixel.red() < 120 && pixel.green() < 120).count();
    (picture.width(), picture.height(), dark)
}

#[test]
fn every_kind_of_figure_is_a_picture() {
    keep("timeline", &timeline());
    keep("cross_rank", &ranks(1));
    keep("small_multiples", &ranks(4));
    keep("dashboard", &dashboard());
    keep("heat", &heat());
}

#[test]
fn hostile_texts_and_numbers_stay_data() {
    let figure = hostile();
    keep("hostile", &figure);
    let svg = figure.svg();
    assert!(!svg.contains("<script") && !svg.contains('\u{0}'), "{svg}");
    let page = figure.page();
    assert_eq!(page.matches("<script").count(), 2);
}

#[test]
fn empty_plot_states_that_there_is_no_data() {
    let empty = Figure { panels: vec![Panel::default()], ..Figure::default() };
    assert!(empty.svg().contains("no data"));
    assert!(empty.png(1.0).is_ok() && Figure::default().png(1.0).is_ok());
}

#[test]
fn a_picture_too_large_to_hold_is_refused_with_a_way_out() {
    let error = timeline().png(1000.0).unwrap_err().to_string();
    assert!(error.contains("use a smaller scale, or SVG"), "{error}");
    assert!(timeline().png(f64::NAN).is_err() && timeline().png(-1.0).is_err());
}

#[test]
fn words_stay_inside_the_picture() {
    for figure in [timeline(), ranks(1), ranks(4), dashboard(), heat(), hostile()] {
        let png = tiny_skia::Pixmap::decode_png(&figure.png(1.0).unwrap()).unwrap();
        let white =
            |x: u32, y: u32| png.pixel(x, y).is_some_and(|pixel| pixel.red() > 250 && pixel.blue() > 250);
        let (width, height) = (png.width(), png.height());
        assert!((0..width).all(|x| white(x, 1) && white(x, height - 2)), "top or bottom is clipped");
        assert!((0..height).all(|y| white(1, y) && white(width - 2, y)), "a side is clipped");
    }
}
