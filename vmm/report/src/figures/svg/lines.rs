//! Draws series over common axes.

use super::{PlotWidth, Scene, clipped, line, mark, width};
use crate::figures::{Lines, PlottedValue, Series};

/// Margin above the plot.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// Minimum distance between direct labels.
const LABEL: f64 = 16.0;
/// Maximum distance between the markers of two series at the same position.
const DODGE: f64 = 14.0;

/// Positions of the axes in user units.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

pub(super) fn draw(plot: &Lines, size: PlotWidth, name: &str) -> Scene {
    let (end, height) = size.extent();
    let mut scene =
        Scene { class: size.class(), width: end, height, name: name.to_owned(), items: Vec::new() };
    let widest =
        plot.y.ticks.iter().map(|tick| width(&plot.y.unit.show(*tick))).fold(0.0, f64::max);
    let labels = plot.series.iter().map(|series| width(&series.name)).fold(0.0, f64::max) + 22.0;
    let are_direct = plot.series.len() > 1 && labels <= end * 0.3;
    let frame = Frame {
        left: widest + 12.0,
        right: end - if are_direct { labels } else { 10.0 },
        top: TOP,
        bottom: height - BOTTOM,
    };
    axes(&mut scene, plot, &frame);
    let count = plot.series.len();
    let mut ends = Vec::new();
    for (ix, series) in plot.series.iter().enumerate() {
        let dodge = (ix as f64 - (count - 1) as f64 / 2.0) * DODGE.min(end * 0.06 / count as f64);
        let end = draw_series(&mut scene, plot, &frame, series, dodge);
        ends.extend(end.map(|height| (height, series)));
    }
    if are_direct {
        label_ends(&mut scene, &frame, ends);
    }
    scene
}

fn axes(scene: &mut Scene, plot: &Lines, frame: &Frame) {
    for tick in plot.y.ticks.iter().filter(|tick| plot.y.contains(**tick)) {
        let y = height(plot, frame, *tick);
        scene.path("grid", line((frame.left, y), (frame.right, y)));
        scene.text("tick", (frame.left - 7.0, y + 4.0), "end", &plot.y.unit.show(*tick));
    }
    scene.text("label", (0.0, 13.0), "start", &clipped(&plot.y.label, scene.width));
    scene.ticks_below(&plot.x, frame.left, frame.right, frame.top, frame.bottom);
    scene.path("axis", line((frame.left, frame.bottom), (frame.right, frame.bottom)));
    if let Some((value, label)) = plot.reference {
        let y = height(plot, frame, value);
        let path = line((frame.left, y), (frame.right, y));
        scene.with_tooltip(label, |scene| scene.path("reference", path));
    }
}

fn height(plot: &Lines, frame: &Frame, value: f64) -> f64 {
    frame.bottom - plot.y.position(value) * (frame.bottom - frame.top)
}

/// Draws a series. Returns the y coordinate of its last marker.
fn draw_series(
    scene: &mut Scene,
    plot: &Lines,
    frame: &Frame,
    series: &Series,
    dodge: f64,
) -> Option<f64> {
    let style = series.style;
    let place = |mark: &PlottedValue| {
        let x = frame.left + plot.x.position(mark.x) * (frame.right - frame.left) + dodge;
        (x, height(plot, frame, mark.y))
    };
    let places: Vec<(f64, f64)> = series.marks.iter().map(place).collect();
    for (mark_at, mark) in places.iter().zip(&series.marks) {
        let places = mark.samples.iter().map(|(value, far)| (height(plot, frame, *value), *far));
        let places: Vec<_> = places.collect();
        scene.samples(&places, style, |place, offset| (mark_at.0 + 7.5 + offset, place));
    }
    if places.len() > 1 {
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        scene.path(format!("line s{style}"), format!("M{}", path.join("L")));
    }
    for (at, placed) in places.iter().zip(&series.marks) {
        scene.with_tooltip(&placed.tooltip, |scene| {
            if let Some((low, high)) = placed.interval {
                let (low, high) = (height(plot, frame, low), height(plot, frame, high));
                let caps = [low, high].map(|y| line((at.0 - 3.0, y), (at.0 + 3.0, y))).concat();
                let bar = line((at.0, low), (at.0, high)) + &caps;
                scene.path(format!("interval s{style}"), bar);
            }
            let hollow = if placed.hollow { " hollow" } else { "" };
            scene.path(format!("mark s{style}{hollow}"), mark(style, *at, 4.8));
        });
    }
    places.last().map(|(_, y)| *y)
}

/// Draws names next to the ends of lines, moved apart if they are close.
fn label_ends(scene: &mut Scene, frame: &Frame, mut ends: Vec<(f64, &Series)>) {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = frame.top;
    for (at, _) in &mut ends {
        *at = at.max(free);
        free = *at + LABEL;
    }
    let mut free = frame.bottom;
    for (at, _) in ends.iter_mut().rev() {
        *at = at.min(free);
        free = *at - LABEL;
    }
    for (at, series) in ends {
        let style = series.style;
        scene.path(format!("mark s{style}"), mark(style, (frame.right + 9.0, at), 3.8));
        scene.text("direct", (frame.right + 18.0, at + 4.0), "start", &series.name);
    }
}
