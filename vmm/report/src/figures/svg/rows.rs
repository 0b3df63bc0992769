//! Draws one row per item.

use super::{PlotWidth, Scene, clipped, line, mark, number, width};
use crate::figures::{Figure, Plot, PlotRow, Rows};

/// Margin below the last row.
const BOTTOM: f64 = 42.0;
const TOP: f64 = 6.0;
/// Space between the rows of two categories.
const GAP: f64 = 9.0;
/// Height of a bar.
const BAR: f64 = 13.0;
/// Height of a category's name above its rows.
const HEADING: f64 = 18.0;

/// Positions of the parts of the rows.
struct RowLayout {
    left: f64,
    right: f64,
    /// Right end of the row names. Category names begin at the left.
    names: f64,
    /// Height of a row.
    row: f64,
    /// Height of the drawing in a row.
    strip: f64,
    /// Whether names and figures are above their row instead of next to it.
    is_stacked: bool,
    /// Width of the category names.
    groups: f64,
    has_groups: bool,
}

/// The widest texts of a figure's rows, so that its panels line up.
pub(super) struct Columns {
    group: f64,
    label: f64,
    note: f64,
}

impl Columns {
    pub(super) fn new(figure: &Figure) -> Self {
        let rows = || {
            let plots = figure.panels.iter().filter_map(|panel| match &panel.plot {
                Plot::Rows(plot) => Some(plot),
                Plot::Lines(_) => None,
            });
            plots.flat_map(|plot| &plot.rows)
        };
        let widest =
            |text: fn(&PlotRow) -> &String| rows().map(|row| width(text(row))).fold(0.0, f64::max);
        Self {
            group: widest(|row| &row.group),
            label: widest(|row| &row.label),
            note: widest(|row| &row.note),
        }
    }
}

impl RowLayout {
    fn new(plot: &Rows, columns: &Columns, size: PlotWidth) -> Self {
        let (total, _) = size.extent();
        let column = |widest: f64| if widest > 0.0 { widest.min(total * 0.28) + 12.0 } else { 0.0 };
        let has_groups = plot.rows.iter().any(|row| !row.group.is_empty());
        let strip = if plot.rows.iter().all(|row| row.ridge.is_empty()) { 16.0 } else { 24.0 };
        let groups = column(columns.group);
        let left = (groups + column(columns.label)).max(16.0);
        match size {
            PlotWidth::Narrow => Self {
                left: 8.0,
                right: total - 12.0,
                names: 8.0,
                row: strip + 18.0,
                strip,
                is_stacked: true,
                groups,
                has_groups,
            },
            _ => Self {
                left,
                right: total - column(columns.note).max(16.0),
                names: left - 10.0,
                row: strip + if has_groups { 4.0 } else { 8.0 },
                strip,
                is_stacked: false,
                groups,
                has_groups,
            },
        }
    }

    /// Tops of the rows, and the bottom of the last row.
    fn tops(&self, plot: &Rows) -> (Vec<f64>, f64) {
        let mut at = TOP;
        let mut tops = Vec::new();
        for ix in 0..plot.rows.len() {
            if self.has_groups && plot.is_first(ix) {
                at += if ix > 0 { GAP } else { 0.0 };
                at += if self.has_heading(plot, ix) { HEADING } else { 0.0 };
            }
            tops.push(at);
            at += self.row;
        }
        (tops, at)
    }

    /// Whether a row has its category's name above it. Rows without a name show it instead.
    fn has_heading(&self, plot: &Rows, row: usize) -> bool {
        let has_name = plot.rows.get(row).is_some_and(|row| !row.label.is_empty());
        self.is_stacked && self.has_groups && plot.is_first(row) && has_name
    }
}

pub(super) fn draw(plot: &Rows, columns: &Columns, size: PlotWidth, name: &str) -> Scene {
    let (full, _) = size.extent();
    let frame = RowLayout::new(plot, columns, size);
    let (tops, bottom) = frame.tops(plot);
    let mut scene = Scene {
        class: size.class(),
        width: full,
        height: bottom + BOTTOM,
        name: name.to_owned(),
        items: Vec::new(),
    };
    scene.ticks_below(&plot.x, frame.left, frame.right, TOP, bottom);
    if let Some(value) = plot.reference {
        let x = frame.left + plot.x.position(value) * (frame.right - frame.left);
        scene.path("reference", line((x, TOP), (x, bottom)));
    }
    for (ix, (row, top)) in plot.rows.iter().zip(tops).enumerate() {
        if frame.has_groups && ix > 0 && plot.is_first(ix) {
            let y = top - GAP / 2.0 - if frame.has_heading(plot, ix) { HEADING } else { 0.0 };
            scene.path("grid", line((0.0, y), (full, y)));
        }
        names(&mut scene, plot, &frame, ix, top);
        scene.with_tooltip(&row.tooltip, |scene| draw_row(scene, plot, &frame, row, top));
    }
    scene
}

/// Draws the names and figures of a row.
fn names(scene: &mut Scene, plot: &Rows, frame: &RowLayout, ix: usize, top: f64) {
    let Some(row) = plot.rows.get(ix) else { return };
    let total = scene.width;
    let is_first = frame.has_groups && plot.is_first(ix);
    if frame.is_stacked {
        let at = top + 13.0;
        let room = total - width(&row.note) - 20.0;
        if frame.has_heading(plot, ix) {
            scene.text("group", (frame.left, at - HEADING), "start", &clipped(&row.group, total));
        }
        let (class, name) =
            if row.label.is_empty() { ("group", &row.group) } else { ("name", &row.label) };
        scene.text(class, (frame.left, at), "start", &clipped(name, room));
        scene.text("note", (frame.right, at), "end", &clipped(&row.note, total * 0.6));
        return;
    }
    let at = top + frame.row - 4.0 - frame.strip / 2.0 + 4.0;
    if is_first {
        scene.text("group", (2.0, at), "start", &clipped(&row.group, frame.groups));
    }
    let (labels, notes) = (frame.left - frame.groups - 8.0, total - frame.right - 8.0);
    if !row.label.is_empty() {
        scene.text("name", (frame.names, at), "end", &clipped(&row.label, labels));
    }
    scene.text("note", (frame.right + 10.0, at), "start", &clipped(&row.note, notes));
}

fn draw_row(scene: &mut Scene, plot: &Rows, frame: &RowLayout, row: &PlotRow, top: f64) {
    let floor = top + frame.row - 4.0;
    let x = |value: f64| frame.left + plot.x.position(value) * (frame.right - frame.left);
    let style = row.style;
    let middle = if row.ridge.is_empty() { floor - frame.strip / 2.0 } else { floor };
    if !row.ridge.is_empty() {
        scene.path(format!("ridge s{style}"), ridge(row, frame, floor, frame.strip - 4.0));
    }
    let places = row.samples.iter().map(|(value, far)| (x(*value), *far));
    scene.samples(&places.collect::<Vec<_>>(), style, |place, offset| {
        (place, middle + 5.0 + offset)
    });
    if let Some(end) = row.bar {
        let (left, right) = (frame.left, x(end).max(frame.left + 1.0));
        let [top, bottom] = [middle - BAR / 2.0, middle + BAR / 2.0];
        let path = line((left, top), (right, top)) + &format!("V{bottom:.1}H{left:.1}z");
        scene.path(format!("mark bar s{style}"), path);
    }
    if let Some((low, high)) = row.span {
        let ends = [low, high].map(|end| line((x(end), middle - 3.0), (x(end), middle + 3.0)));
        let caps = if row.ridge.is_empty() { ends.concat() } else { String::new() };
        let bar = line((x(low), middle), (x(high), middle)) + &caps;
        let class = if row.bar.is_some() {
            "interval over".to_owned()
        } else {
            format!("interval s{style}")
        };
        scene.path(class, bar);
    }
    for (kind, value) in &row.marks {
        let class = match (row.ridge.is_empty(), row.hollow) {
            (true, true) => format!("mark s{kind} hollow"),
            (true, false) => format!("mark s{kind}"),
            (false, _) => "mark plain".to_owned(),
        };
        scene.path(class, mark(*kind, (x(*value), middle), 4.2));
    }
}

fn ridge(row: &PlotRow, frame: &RowLayout, floor: f64, height: f64) -> String {
    let step = (frame.right - frame.left) / row.ridge.len() as f64;
    let mut path = format!("M{} {}", number(frame.left), number(floor));
    let mut last = 0.0;
    for (ix, share) in row.ridge.iter().enumerate() {
        if *share != last {
            let (x, y) = (frame.left + step * ix as f64, floor - height * share);
            path += &format!("H{}V{}", number(x), number(y));
            last = *share;
        }
    }
    path + &format!("H{}V{}z", number(frame.right), number(floor))
}
