//! Plots as SVG. This module computes the geometry, the template escapes text, and the page's style defines
//! colours.

mod lines;
mod rows;

use askama::Template;

use super::{Figure, MANY, Panel, Plot, STYLES, scale::Scale};

/// Width of an average letter at the plots' font size.
const LETTER: f64 = 6.9;

/// The page width for which a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlotWidth {
    /// The full width of a wide page.
    Wide,
    /// Half the width of a wide page.
    Half,
    /// A narrow page.
    Narrow,
}

impl PlotWidth {
    const fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Half => "wide half",
            Self::Narrow => "narrow",
        }
    }

    /// Width and height in user units; rows compute their height.
    const fn extent(self) -> (f64, f64) {
        match self {
            Self::Wide => (1080.0, 420.0),
            Self::Half => (540.0, 340.0),
            Self::Narrow => (360.0, 300.0),
        }
    }
}

/// A shape, or the start or end of a group of shapes with a common tooltip.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Begin { says: String },
    End,
    Path { class: String, d: String },
    Text { class: String, x: String, y: String, anchor: &'static str, text: String },
}

/// A plot under construction.
#[derive(Debug, Template)]
#[template(path = "figures/svg/scene.svg", escape = "html")]
struct Scene {
    class: &'static str,
    width: f64,
    height: f64,
    name: String,
    items: Vec<Item>,
}

impl Scene {
    fn path(&mut self, class: impl Into<String>, d: String) {
        self.items.push(Item::Path { class: class.into(), d });
    }

    /// Gives the shapes from `draw` a tooltip.
    fn with_tooltip(&mut self, text: &str, draw: impl FnOnce(&mut Self)) {
        self.items.push(Item::Begin { says: text.to_owned() });
        draw(self);
        self.items.push(Item::End);
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: &'static str, text: &str) {
        let [x, y] = [at.0, at.1].map(number);
        self.items.push(Item::Text {
            class: class.to_owned(),
            x,
            y,
            anchor,
            text: text.to_owned(),
        });
    }

    /// Single samples at their positions on the value axis, spread across it so that they are
    /// distinguishable. Outliers are rings.
    fn samples(
        &mut self,
        places: &[(f64, bool)],
        style: usize,
        at: impl Fn(f64, f64) -> (f64, f64),
    ) {
        for far in [false, true] {
            let selected = places.iter().enumerate().filter(|(_, (_, is_far))| *is_far == far);
            let dots = selected.map(|(ix, (place, _))| {
                let (x, y) = at(*place, [-1.5, 1.5, -0.5, 0.5][ix % 4]);
                // A line of zero length, which the style draws as a dot.
                if far { mark(0, (x, y), 2.8) } else { format!("M{} {}h0", number(x), number(y)) }
            });
            let dots: String = dots.collect();
            if !dots.is_empty() {
                self.path(format!("{} s{style}", if far { "outlier" } else { "dots" }), dots);
            }
        }
    }

    /// Grid lines, and the labels below them as far as there is room.
    fn ticks_below(&mut self, scale: &Scale, left: f64, right: f64, top: f64, bottom: f64) {
        let mut free = f64::NEG_INFINITY;
        for tick in scale.ticks.iter().filter(|tick| scale.contains(**tick)) {
            let x = left + scale.position(*tick) * (right - left);
            self.path("grid", line((x, top), (x, bottom)));
            let text = scale.unit.show(*tick);
            let half = width(&text) / 2.0;
            // Letters of the label may be wider than average.
            if x - half > free.max(0.0) && x + half + 4.0 <= self.width {
                self.text("tick", (x, bottom + 16.0), "middle", &text);
                free = x + half + 6.0;
            }
        }
        self.text("label", (f64::midpoint(left, right), bottom + 34.0), "middle", &scale.label);
    }
}

/// Titles and plots of a figure's panels: one plot for wide pages and one for narrow pages, or only the
/// latter if there are many panels.
pub fn panels(figure: &Figure) -> Vec<(&str, Vec<String>)> {
    let sizes: &[PlotWidth] = match figure.panels.len() {
        MANY.. => &[PlotWidth::Narrow],
        2.. if figure.has_lines() => &[PlotWidth::Half, PlotWidth::Narrow],
        _ => &[PlotWidth::Wide, PlotWidth::Narrow],
    };
    let columns = rows::Columns::new(figure);
    let drawn = |panel: &Panel| {
        let name = match panel.title.as_str() {
            "" => figure.title.clone(),
            title => format!("{}: {title}", figure.title),
        };
        let draw = |size: &PlotWidth| match &panel.plot {
            Plot::Lines(plot) => lines::draw(plot, *size, &name),
            Plot::Rows(plot) => rows::draw(plot, &columns, *size, &name),
        };
        // Writing to a String cannot fail.
        sizes.iter().map(|size| draw(size).render().unwrap_or_default()).collect()
    };
    figure.panels.iter().map(|panel| (panel.title.as_str(), drawn(panel))).collect()
}

/// A single marker, for legends.
pub fn marker(style: usize, class: &str) -> String {
    let mut scene =
        Scene { class: "key", width: 16.0, height: 16.0, name: String::new(), items: Vec::new() };
    if class.contains("series") {
        scene.path(format!("line s{style}"), line((0.0, 8.0), (16.0, 8.0)));
    }
    match class {
        "plain" => scene.path("mark plain", mark(style, (8.0, 8.0), 4.5)),
        "bar" => scene.path(format!("mark bar s{style}"), mark(SQUARE, (8.0, 8.0), 5.0)),
        _ => scene.path(format!("mark s{style}"), mark(style, (8.0, 8.0), 4.5)),
    }
    scene.render().unwrap_or_default()
}

/// A coordinate with at most one decimal.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Approximate width of a text.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// A text shortened to `room`.
fn clipped(text: &str, room: f64) -> String {
    let max_letters = (room / LETTER).max(4.0) as usize;
    if text.chars().count() > max_letters {
        text.chars().take(max_letters - 1).chain(['\u{2026}']).collect()
    } else {
        text.to_owned()
    }
}

fn line(from: (f64, f64), to: (f64, f64)) -> String {
    format!("M{} {}L{} {}", number(from.0), number(from.1), number(to.0), number(to.1))
}

/// The style with a square marker.
const SQUARE: usize = 1;

/// Corners of the markers, in units of the radius.
const CORNERS: [&[(f64, f64)]; STYLES - 1] = [
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
    &[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)],
    &[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
    &[(-0.35, -1.2), (0.35, -1.2), (0.35, 1.2), (-0.35, 1.2)],
    &[(-1.2, -0.4), (1.2, -0.4), (1.2, 0.4), (-1.2, 0.4)],
    &[(-0.6, -1.1), (0.6, -1.1), (1.2, 0.0), (0.6, 1.1), (-0.6, 1.1), (-1.2, 0.0)],
    &[
        (0.0, -1.3),
        (0.35, -0.49),
        (1.24, -0.4),
        (0.57, 0.19),
        (0.76, 1.05),
        (0.0, 0.6),
        (-0.76, 1.05),
        (-0.57, 0.19),
        (-1.24, -0.4),
        (-0.35, -0.49),
    ],
    &[
        (-0.4, -1.2),
        (0.4, -1.2),
        (0.4, -0.4),
        (1.2, -0.4),
        (1.2, 0.4),
        (0.4, 0.4),
        (0.4, 1.2),
        (-0.4, 1.2),
        (-0.4, 0.4),
        (-1.2, 0.4),
        (-1.2, -0.4),
        (-0.4, -0.4),
    ],
    &[
        (0.57, -1.13),
        (1.13, -0.57),
        (0.57, 0.0),
        (1.13, 0.57),
        (0.57, 1.13),
        (0.0, 0.57),
        (-0.57, 1.13),
        (-1.13, 0.57),
        (-0.57, 0.0),
        (-1.13, -0.57),
        (-0.57, -1.13),
        (0.0, -0.57),
    ],
    &[(-0.8, -1.1), (1.2, 0.0), (-0.8, 1.1)],
];

/// The path of a marker; each style has a different shape.
fn mark(style: usize, at: (f64, f64), radius: f64) -> String {
    let Some(corners) = style.checked_sub(1).and_then(|ix| CORNERS.get(ix)) else {
        let [x, y, r, d] = [at.0 - radius, at.1, radius, 2.0 * radius].map(number);
        return format!("M{x} {y}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z");
    };
    let corner = |(x, y): &(f64, f64)| {
        format!("{} {}", number(at.0 + x * radius), number(at.1 + y * radius))
    };
    format!("M{}z", corners.iter().map(corner).collect::<Vec<_>>().join("L"))
}
