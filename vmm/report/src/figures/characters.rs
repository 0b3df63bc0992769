//! Plots for a terminal: lines as braille dots, markers as symbols.

use super::{Figure, Lines, Plot, PlotRow, Rows, STYLES, scale::Scale};

/// Marker symbols, in the order of the styles.
const MARKERS: [char; STYLES] =
    ['\u{25cf}', '\u{25a0}', '\u{25b2}', '\u{25c6}', '\u{25bc}', '+', 'x', '*', '#', '%', '@', '&'];
/// Rows of characters in a line plot.
const HEIGHT: usize = 14;
/// Bars of a distribution, by height in eighths.
const LEVELS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];

/// Block characters, filled in eighths from the left.
const EIGHTHS: [char; 9] = [
    ' ', '\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}',
    '\u{2588}',
];

/// Minimum width of a row's drawing.
const MIN_STRIP: usize = 8;

/// Symbols of hollow markers. All further styles share the last.
const HOLLOW: [char; 6] = ['\u{25cb}', '\u{25a1}', '\u{25b3}', '\u{25c7}', '\u{25bd}', '\u{25cc}'];

/// The symbol of a style.
pub fn marker(style: usize) -> char {
    MARKERS[style % STYLES]
}

fn hollow(style: usize) -> char {
    HOLLOW[(style % STYLES).min(HOLLOW.len() - 1)]
}

/// A figure in `width` columns: title, panels, legend and note.
pub fn figure(figure: &Figure, width: usize) -> String {
    let mut text = wrapped(&figure.title, width, "");
    for panel in &figure.panels {
        if !panel.title.is_empty() {
            text += &format!("\n  {}\n", panel.title);
        }
        text += &match &panel.plot {
            Plot::Lines(plot) => lines(plot, width),
            Plot::Rows(plot) => rows(plot, width),
        };
    }
    let legend = figure.legend.iter().map(|line| format!("{} {}", marker(line.style), line.name));
    text += &wrapped(&legend.collect::<Vec<_>>().join("   "), width, "  ");
    text + &wrapped(&figure.note, width, "  ")
}

/// A plot in characters of two by four dots.
struct Canvas {
    columns: usize,
    rows: usize,
    dots: Vec<u8>,
    over: Vec<Option<char>>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, dots: vec![0; columns * rows], over: vec![None; columns * rows] }
    }

    /// The dot at `x` from the left and `y` from the bottom, both from 0 to 1.
    fn dot_at(&self, x: f64, y: f64) -> (usize, usize) {
        let column = (x * (self.columns * 2 - 1) as f64).round() as usize;
        let row = ((1.0 - y) * (self.rows * 4 - 1) as f64).round() as usize;
        (column.min(self.columns * 2 - 1), row.min(self.rows * 4 - 1))
    }

    fn dot(&mut self, (column, row): (usize, usize)) {
        // Unicode numbers the dots of a braille character by columns, except for the lowest row.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        self.dots[row / 4 * self.columns + column / 2] |= BITS[row % 4][column % 2];
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let steps = (self.columns * 2).max(self.rows * 4);
        for step in 0..=steps {
            let share = step as f64 / steps as f64;
            let at = |from: f64, to: f64| from + (to - from) * share;
            let dot = self.dot_at(at(from.0, to.0), at(from.1, to.1));
            self.dot(dot);
        }
    }

    fn put(&mut self, x: f64, y: f64, letter: char, is_first: bool) {
        let (column, row) = self.dot_at(x, y);
        let at = &mut self.over[row / 4 * self.columns + column / 2];
        if at.is_none() || is_first {
            *at = Some(letter);
        }
    }

    fn row(&self, row: usize) -> String {
        let letter = |ix: usize| match (self.over[ix], self.dots[ix]) {
            (Some(letter), _) => letter,
            (None, 0) => ' ',
            (None, dots) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
        };
        (row * self.columns..(row + 1) * self.columns).map(letter).collect()
    }
}

fn lines(plot: &Lines, width: usize) -> String {
    let labels: Vec<(usize, String)> = y_labels(&plot.y);
    let room = labels.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0) + 1;
    let mut canvas = Canvas::new(width.saturating_sub(room + 4).max(20), HEIGHT);
    if let Some((value, _)) = plot.reference {
        let y = plot.y.position(value);
        (0..canvas.columns).step_by(2).for_each(|column| {
            let x = column as f64 / canvas.columns as f64;
            canvas.put(x, y, '\u{2508}', false);
        });
    }
    let count = plot.series.len();
    for (ix, series) in plot.series.iter().enumerate() {
        let dodge = (ix as f64 - (count - 1) as f64 / 2.0) / canvas.columns as f64;
        let place = |x: f64| (plot.x.position(x) + dodge).clamp(0.0, 1.0);
        let places: Vec<(f64, f64)> =
            series.marks.iter().map(|mark| (place(mark.x), plot.y.position(mark.y))).collect();
        for pair in places.windows(2) {
            canvas.line(pair[0], pair[1]);
        }
        for (mark, (x, y)) in series.marks.iter().zip(&places) {
            if let Some((low, high)) = mark.interval {
                canvas.line((*x, plot.y.position(low)), (*x, plot.y.position(high)));
            }
            let letter = if mark.hollow { hollow(series.style) } else { marker(series.style) };
            canvas.put(*x, *y, letter, true);
        }
    }
    let mut text = format!("  {}\n", plot.y.label);
    for row in 0..HEIGHT {
        let label = labels.iter().find(|(at, _)| *at == row).map_or("", |(_, label)| label);
        let edge = if label.is_empty() { '\u{2502}' } else { '\u{2524}' };
        text += format!("  {label:>room$}{edge}{}", canvas.row(row)).trim_end();
        text.push('\n');
    }
    text + &axis_below(&plot.x, canvas.columns, room + 2)
}

/// The tick labels with their rows.
fn y_labels(scale: &Scale) -> Vec<(usize, String)> {
    let row = |place: f64| {
        (((1.0 - place) * (HEIGHT * 4 - 1) as f64).round() as usize / 4).min(HEIGHT - 1)
    };
    let ticks = scale.ticks.iter().filter(|tick| scale.contains(**tick));
    ticks.map(|tick| (row(scale.position(*tick)), scale.unit.show(*tick))).collect()
}

/// The axis line, the tick labels that fit below it, and the axis' name.
fn axis_below(scale: &Scale, columns: usize, indent: usize) -> String {
    let names = tick_names(scale, columns);
    let blank = " ".repeat(indent);
    let rule = "\u{2500}".repeat(columns);
    format!("{blank}\u{2514}{rule}\n{blank} {names}\n{blank} {}\n", scale.label)
}

/// The tick labels that fit below an axis of `columns` columns.
fn tick_names(scale: &Scale, columns: usize) -> String {
    let mut names = String::new();
    let mut free = 0;
    for tick in scale.ticks.iter().filter(|tick| scale.contains(**tick)) {
        let text = scale.unit.show(*tick);
        let half = text.chars().count() / 2;
        let at =
            ((scale.position(*tick) * (columns - 1) as f64).round() as usize).saturating_sub(half);
        if at >= free && at + text.chars().count() <= columns {
            names += &" ".repeat(at + usize::from(free > 0) - free);
            names += &text;
            free = at + text.chars().count() + 1;
        }
    }
    names
}

fn rows(plot: &Rows, width: usize) -> String {
    let (text, left, columns) = strips(plot, width);
    text + &axis_below(&plot.x, columns, left)
}

/// Rows, and below them one line with `unit` and the tick labels.
pub fn compact(plot: &Rows, unit: &str, width: usize) -> String {
    let (text, left, columns) = strips(plot, width);
    let unit: String = unit.chars().take(left).collect();
    text + &format!("{unit:<left$} {}\n", tick_names(&plot.x, columns))
}

/// One line per row, the number of columns left of the axis, and the number right of it.
fn strips(plot: &Rows, width: usize) -> (String, usize, usize) {
    let longest = |text: fn(&PlotRow) -> &String| {
        plot.rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0)
    };
    let groups = match longest(|row| &row.group).min(width / 3) {
        0 => 0,
        longest => longest + 1,
    };
    let notes = longest(|row| &row.note).min(width / 2);
    let room = width.saturating_sub(groups + notes + MIN_STRIP + 6);
    let labels = longest(|row| &row.label).min(room.max(width / 3));
    let columns = width.saturating_sub(groups + labels + notes + 6).max(MIN_STRIP);
    let mut text = String::new();
    for (ix, row) in plot.rows.iter().enumerate() {
        let group = if plot.is_first(ix) { row.group.as_str() } else { "" };
        let group: String = group.chars().take(groups.saturating_sub(1)).collect();
        let label: String = row.label.chars().take(labels).collect();
        let line = format!(
            "  {group:<groups$}{label:<labels$} \u{2502}{} {}",
            strip(row, plot, columns),
            row.note
        );
        text += line.trim_end();
        text.push('\n');
    }
    (text, groups + labels + 3, columns)
}

fn strip(row: &PlotRow, plot: &Rows, columns: usize) -> String {
    if let Some(end) = row.bar {
        return bar(plot.x.position(end), columns);
    }
    let at = |value: f64| (plot.x.position(value) * (columns - 1) as f64).round() as usize;
    let mut letters = vec![' '; columns];
    for (ix, height) in row.ridge.iter().enumerate() {
        let column = (ix * columns / row.ridge.len()).min(columns - 1);
        let level = LEVELS[((height * 8.0).ceil() as usize).min(8)];
        letters[column] = letters[column].max(level);
    }
    if row.ridge.is_empty() {
        if let Some(value) = plot.reference {
            letters[at(value)] = '\u{250a}';
        }
        for (value, _) in &row.samples {
            letters[at(*value)] = '\u{b7}';
        }
        if let Some((low, high)) = row.span {
            letters[at(low)..=at(high).max(at(low))].fill('\u{2500}');
        }
        for (kind, value) in &row.marks {
            letters[at(*value)] = if row.hollow { hollow(*kind) } else { marker(*kind) };
        }
    }
    letters.into_iter().collect()
}

/// A bar up to `place`, from 0 to 1.
fn bar(place: f64, columns: usize) -> String {
    let eighths = (place * (columns * 8) as f64).round() as usize;
    let part = |column: usize| EIGHTHS[eighths.saturating_sub(column * 8).min(8)];
    (0..columns).map(part).collect()
}

/// Wraps text at spaces into lines of at most `width` columns; longer words exceed it.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let is_full = indent.len() + line.chars().count() + 1 + word.chars().count() > width;
        if is_full && !line.is_empty() {
            lines += &format!("{indent}{}\n", line.trim_end());
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.trim().is_empty() {
        lines += &format!("{indent}{}\n", line.trim_end());
    }
    lines
}
