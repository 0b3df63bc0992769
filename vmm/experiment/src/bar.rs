//! Progress bars, which are all on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates a bar with this length, if it is known, and this template (indicatif's syntax).
pub fn on_stderr(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    // All templates are texts that indicatif accepts; otherwise the default style is used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
