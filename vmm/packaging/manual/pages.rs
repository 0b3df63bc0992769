//! One man page per subcommand, and pvticket(1).

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};

use crate::{
    ManualError,
    source::{self, SectionPart},
};

/// All pages: paths below `share`, with contents.
pub(crate) fn pages(command: &Command) -> Result<Vec<(String, Vec<u8>)>, ManualError> {
    // `pvticket help` has no page, as with clap_mangen.
    let mut root = command.clone().disable_help_subcommand(true);
    root.build();
    let source = format!("pvticket {}", root.get_version().unwrap_or_default());
    let mut pages = Vec::new();
    collect(&root, &source, &mut pages)?;
    Ok(pages)
}

/// Renders the pages of `command` and its subcommands.
fn collect(
    command: &Command,
    source: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), ManualError> {
    let man = Man::new(command.clone()).source(source).manual("pvticket");
    let path = format!("man/man1/{}", man.get_filename());
    let mut text = Vec::new();
    render(&man, command, &mut text)
        .map_err(|source| ManualError::Write { path: path.clone().into(), source })?;
    let text =
        tidy(&(String::from_utf8_lossy(&text) + &*last_sections(command)?.to_roff())).into_bytes();
    pages.push((path, text));
    command.get_subcommands().try_for_each(|command| collect(command, source, pages))
}

/// Renders clap's sections except VERSION, which is in the page's footer.
fn render(man: &Man, command: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    man.render_title(text)?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(text)?;
    }
    Ok(())
}

/// Removes the preambles of all sections but the first, and sets words in backticks in bold.
fn tidy(page: &str) -> String {
    let mut preamble = 0;
    let mut text = String::new();
    for line in page.lines() {
        let is_preamble = line.starts_with(".ie ") || line.starts_with(".el ");
        preamble += usize::from(is_preamble);
        if is_preamble && preamble > 2 {
            continue;
        }
        for (index, part) in line.split('`').enumerate() {
            text += ["", "\\fB", "\\fR"][if index == 0 { 0 } else { 2 - index % 2 }];
            text += part;
        }
        text.push('\n');
    }
    text
}

/// The last sections: in `pvticket.1` from the manual, in all other pages a reference to
/// `pvticket(1)`.
fn last_sections(command: &Command) -> Result<Roff, ManualError> {
    let mut roff = Roff::new();
    let name = command.get_display_name().unwrap_or(command.get_name());
    if name != "pvticket" {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold("pvticket"), roman("(1)")]);
        return Ok(roff);
    }
    for section in source::sections()? {
        roff.control("SH", [section.title.to_uppercase().as_str()]);
        for part in section.parts {
            match part {
                SectionPart::Paragraph(text) => {
                    roff.control("PP", []);
                    roff.text(inlines(&text));
                }
                SectionPart::Row(name, meaning) => {
                    roff.control("TP", []);
                    roff.text([bold(name)]);
                    roff.text(inlines(meaning));
                }
            }
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("The guides in "), bold("share/doc/pvticket"), roman(" of the package.")]);
    Ok(roff)
}

/// Sets Markdown code in bold and removes link targets.
fn inlines(text: &str) -> Vec<Inline> {
    without_targets(text)
        .split('`')
        .enumerate()
        .map(|(index, part)| if index % 2 == 0 { roman(part) } else { bold(part) })
        .collect()
}

fn without_targets(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        let (title, after) = link.split_once("](").unwrap_or((link, ")"));
        plain.push_str(title);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}
