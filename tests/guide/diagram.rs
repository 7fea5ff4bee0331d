//! Sequence diagrams: SVG from text.
//!
//! ```text
//! title: What is to be seen
//! actors: A, Redis
//! A -> Redis: a message
//! Redis -x A: a message that does not arrive
//! A: what it does by itself
//! ```

use std::fmt::Write;

// Narrow, so that the text can be read on a telephone, where a picture is as wide as the screen.
const COLUMN: usize = 150;
const ROW: usize = 36;
const LINE: usize = 14;
const TOP: usize = 86;
/// Of one character, about.
const LETTER: usize = 6;

enum Step<'a> {
    Message { from: usize, to: usize, arrives: bool, text: &'a str },
    Note { at: usize, text: &'a str },
}

impl Step<'_> {
    /// Its text, broken so that it does not reach far over the columns that it belongs to.
    fn lines(&self) -> Vec<String> {
        let (text, columns) = match *self {
            Self::Message { from, to, text, .. } => (text, from.abs_diff(to)),
            Self::Note { text, .. } => (text, 1),
        };
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let last = lines.last_mut().expect("one at least");
            let fits = last.chars().count() + 1 + word.chars().count() <= columns * COLUMN / LETTER;
            match last.is_empty() {
                true => last.push_str(word),
                false if fits => last.extend([" ", word]),
                false => lines.push(word.to_owned()),
            }
        }
        lines
    }
}

/// A diagram's title and its SVG.
pub(crate) fn draw(source: &str) -> (String, String) {
    let mut lines = source.lines().filter(|line| !line.trim().is_empty());
    let title = lines.next().and_then(|line| line.strip_prefix("title: ")).expect("a title");
    let actors = lines.next().and_then(|line| line.strip_prefix("actors: ")).expect("actors");
    let actors: Vec<&str> = actors.split(", ").collect();
    let steps: Vec<Step<'_>> = lines.map(|line| step(line, &actors)).collect();
    (title.to_owned(), svg(title, &actors, &steps))
}

fn step<'a>(line: &'a str, actors: &[&str]) -> Step<'a> {
    let (who, text) = line.split_once(": ").unwrap_or_else(|| panic!("no text: {line}"));
    let place = |name: &str| {
        let at = actors.iter().position(|actor| *actor == name.trim());
        at.unwrap_or_else(|| panic!("no such actor: {line}"))
    };
    for (arrow, arrives) in [(" -> ", true), (" -x ", false)] {
        if let Some((from, to)) = who.split_once(arrow) {
            return Step::Message { from: place(from), to: place(to), arrives, text };
        }
    }
    Step::Note { at: place(who), text }
}

fn middle(column: usize) -> usize {
    COLUMN / 2 + column * COLUMN
}

fn svg(title: &str, actors: &[&str], steps: &[Step<'_>]) -> String {
    let lines = steps.iter().map(|step| step.lines().len() - 1).sum::<usize>();
    let (width, height) = (actors.len() * COLUMN, TOP + steps.len() * ROW + lines * LINE + 14);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        width / 2,
        escaped(title),
    );
    for (column, actor) in actors.iter().enumerate() {
        let x = middle(column);
        let _ = write!(
            out,
            "<line x1=\"{x}\" y1=\"64\" x2=\"{x}\" y2=\"{}\" stroke=\"#9aa\"/>\n\
             <rect x=\"{}\" y=\"36\" width=\"100\" height=\"28\" rx=\"5\" fill=\"#e8eef7\" stroke=\"#678\"/>\n\
             <text x=\"{x}\" y=\"55\" text-anchor=\"middle\">{}</text>\n",
            height - 8,
            x - 50,
            escaped(actor),
        );
    }
    let mut y = TOP + 10;
    for step in steps {
        let lines = step.lines();
        y += (lines.len() - 1) * LINE;
        match *step {
            Step::Message { from, to, arrives, .. } => {
                let (from, to) = (middle(from), middle(to));
                message(&mut out, (from, to), y, arrives);
                label(&mut out, (from + to) / 2, y - 12, width, &lines, "#fff");
            }
            Step::Note { at, .. } => {
                label(&mut out, middle(at), y - 4, width, &lines, "#fdf3d0");
            }
        }
        y += ROW;
    }
    out.push_str("</svg>\n");
    out
}

fn message(out: &mut String, (from, to): (usize, usize), y: usize, arrives: bool) {
    let forward = to > from;
    // A lost one ends on its way.
    let end = match (arrives, forward) {
        (true, _) => to,
        (false, true) => to - COLUMN / 4,
        (false, false) => to + COLUMN / 4,
    };
    let back = if forward { end - 7 } else { end + 7 };
    let colour = if arrives { "#245" } else { "#b22" };
    let _ = writeln!(
        out,
        "<line x1=\"{from}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\" stroke=\"{colour}\"/>"
    );
    let tip = if arrives {
        format!("M{back} {} L{end} {y} L{back} {}", y - 4, y + 4)
    } else {
        format!("M{} {} l8 8 m0 -8 l-8 8", end - 4, y - 4)
    };
    let _ = writeln!(out, "<path d=\"{tip}\" fill=\"none\" stroke=\"{colour}\"/>");
}

/// Lines of text whose last one is at this height, with a box behind them, so that no line runs through.
fn label(out: &mut String, x: usize, y: usize, width: usize, lines: &[String], fill: &str) {
    let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let wide = letters * LETTER + 12;
    let top = y - (lines.len() - 1) * LINE;
    // Not over the edge of the picture.
    let left = x.saturating_sub(wide / 2).max(2).min(width.saturating_sub(wide + 2));
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{}\" width=\"{wide}\" height=\"{}\" rx=\"4\" fill=\"{fill}\"/>",
        top - 5,
        13 + y - top,
    );
    for (number, line) in lines.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + wide / 2,
            top + 6 + number * LINE,
            escaped(line),
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
