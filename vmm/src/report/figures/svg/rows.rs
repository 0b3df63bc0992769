//! A row for each of several things.

use super::{Scene, Size, clipped, line, mark, rectangle, width};
use crate::report::figures::{Row, Rows};

/// Beneath the last row.
const BOTTOM: f64 = 42.0;
const TOP: f64 = 6.0;

/// Where the rows' parts are.
struct Frame {
    left: f64,
    right: f64,
    /// Height of a row.
    row: f64,
    /// Names and figures stand above their row.
    is_stacked: bool,
}

pub(super) fn draw(plot: &Rows, size: Size, name: &str) -> Scene {
    let (all, _) = size.extent();
    let widest = |of: fn(&Row) -> &String| {
        plot.rows.iter().map(|row| width(of(row))).fold(0.0, f64::max).min(all * 0.28) + 12.0
    };
    // So that the panels of a figure begin and end alike.
    let column = |width: f64| (width / 32.0).ceil() * 32.0;
    let frame = match size {
        Size::Narrow => Frame { left: 8.0, right: all - 12.0, row: 42.0, is_stacked: true },
        _ => Frame {
            left: column(widest(|row| &row.label)),
            right: all - column(widest(|row| &row.note)),
            row: 32.0,
            is_stacked: false,
        },
    };
    let bottom = TOP + frame.row * plot.rows.len() as f64;
    let mut scene = Scene {
        class: size.class(),
        width: all,
        height: bottom + BOTTOM,
        name: name.to_owned(),
        items: Vec::new(),
    };
    scene.ticks_below(&plot.x, frame.left, frame.right, TOP, bottom);
    if let Some(value) = plot.reference {
        let x = frame.left + plot.x.place(value) * (frame.right - frame.left);
        scene.path("reference", line((x, TOP), (x, bottom)));
    }
    for (ix, row) in plot.rows.iter().enumerate() {
        draw_row(&mut scene, plot, &frame, row, TOP + frame.row * ix as f64);
    }
    scene
}

fn draw_row(scene: &mut Scene, plot: &Rows, frame: &Frame, row: &Row, top: f64) {
    let floor = top + frame.row - 4.0;
    let strip = 24.0;
    let all = scene.width;
    if frame.is_stacked {
        let at = top + 13.0;
        let room = all - width(&row.note) - 20.0;
        scene.text("name", (frame.left, at), "start", &clipped(&row.label, room));
        scene.text("note", (frame.right, at), "end", &clipped(&row.note, all * 0.6));
    } else {
        let at = floor - strip / 2.0 + 4.0;
        let (labels, notes) = (frame.left - 8.0, all - frame.right - 8.0);
        scene.text("name", (frame.left - 10.0, at), "end", &clipped(&row.label, labels));
        scene.text("note", (frame.right + 10.0, at), "start", &clipped(&row.note, notes));
    }
    let x = |value: f64| frame.left + plot.x.place(value) * (frame.right - frame.left);
    let style = row.style;
    let middle = if row.ridge.is_empty() { floor - strip / 2.0 } else { floor };
    if !row.ridge.is_empty() {
        let path = ridge(row, frame, floor, strip - 4.0);
        scene.titled(format!("ridge s{style}"), path, row.says.clone());
    }
    segments(scene, plot, frame, row, floor);
    if let Some((low, high)) = row.span {
        let class = format!("interval s{style}");
        scene.titled(class, line((x(low), middle), (x(high), middle)), row.says.clone());
    }
    for (kind, value) in &row.marks {
        let class = match (row.ridge.is_empty(), row.hollow) {
            (true, true) => format!("mark s{style} hollow"),
            (true, false) => format!("mark s{style}"),
            (false, _) => "mark plain".to_owned(),
        };
        scene.titled(class, mark(*kind, (x(*value), middle), 4.2), row.says.clone());
    }
}

fn ridge(row: &Row, frame: &Frame, floor: f64, height: f64) -> String {
    let step = (frame.right - frame.left) / row.ridge.len() as f64;
    let mut path = format!("M{:.1} {floor:.1}", frame.left);
    for (ix, share) in row.ridge.iter().enumerate() {
        let (x, y) = (frame.left + step * ix as f64, floor - height * share);
        path += &format!("L{x:.1} {y:.1}h{step:.1}");
    }
    path + &format!("L{:.1} {floor:.1}z", frame.right)
}

fn segments(scene: &mut Scene, plot: &Rows, frame: &Frame, row: &Row, floor: f64) {
    let mut so_far = 0.0;
    for (style, value) in &row.segments {
        let place = |value: f64| frame.left + plot.x.place(value) * (frame.right - frame.left);
        let (from, to) = (place(so_far), place(so_far + value));
        so_far += value;
        if to - from > 0.05 {
            let bar = rectangle(from, floor - 18.0, to - from, 14.0);
            scene.titled(format!("bar s{style}"), bar, row.says.clone());
        }
    }
}
