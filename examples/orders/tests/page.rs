//! What can be said of the page without a browser.

use std::collections::{BTreeMap, BTreeSet};

use orders::PAGE;

/// The colours of a palette, by their names.
fn palette(css: &str) -> BTreeMap<&str, [f64; 3]> {
    let declared = css.split_once(":root {").and_then(|(_, css)| css.split_once('}'));
    let declared = declared.expect("a palette").0.split(';');
    let pairs = declared.filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"));
    let channel = |hex: &str, at: usize| {
        f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour")) / 255.0
    };
    pairs.map(|(name, hex)| (name, [0, 2, 4].map(|at| channel(hex, at)))).collect()
}

/// As WCAG 2 counts it.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let [red, green, blue] = colour.map(|channel| {
            if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The elements of this name: their attributes, and what is in them.
fn elements<'a>(name: &str) -> Vec<(&'a str, &'a str)> {
    let (open, close) = (format!("<{name} "), format!("</{name}>"));
    let plain = format!("<{name}>");
    let starts = PAGE.match_indices(&open).chain(PAGE.match_indices(&plain));
    let element = |(at, _): (usize, _)| {
        let (attributes, rest) = PAGE[at + 1..].split_once('>').expect("the end of a tag");
        (attributes, rest.split_once(&close).map_or("", |(inside, _)| inside))
    };
    starts.map(element).collect()
}

fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = attributes.split_once(&format!(" {name}=\""))?;
    value.split('"').next()
}

/// What is read out of an element: its text without its tags.
fn text(inside: &str) -> String {
    let texts = inside.split('<').enumerate().map(|(at, piece)| match piece.split_once('>') {
        Some((_, text)) => text,
        None if at == 0 => piece,
        None => "",
    });
    texts.collect::<String>().replace("&nbsp;", " ").trim().to_owned()
}

#[test]
fn wm8_borders_of_controls_and_texts_stand_out_in_both_palettes() {
    let (light, dark) = PAGE.split_once("prefers-color-scheme: dark").expect("two palettes");
    for (scheme, css) in [("light", light), ("dark", dark)] {
        let colours = palette(css);
        let colour = |name| *colours.get(name).unwrap_or_else(|| panic!("{scheme}: no --{name}"));
        for ground in ["card", "sunken", "page"] {
            let edge = contrast(colour("edge"), colour(ground));
            assert!(edge >= 3.0, "{scheme}: edge on {ground} {edge:.1}");
            for ink in ["ink", "soft"] {
                let ink = contrast(colour(ink), colour(ground));
                assert!(ink >= 4.5, "{scheme}: text on {ground} {ink:.1}");
            }
        }
        let pairs = [("held", "held-bg"), ("waits", "waits-bg"), ("bad", "bad-bg")];
        for (ink, ground) in pairs.into_iter().chain([("on-accent", "accent"), ("accent", "card")])
        {
            let ratio = contrast(colour(ink), colour(ground));
            assert!(ratio >= 4.5, "{scheme}: {ink} on {ground} {ratio:.1}");
        }
    }
    for rule in ["\nbutton {", "\ninput, select {"] {
        let rule = PAGE.split_once(rule).and_then(|(_, css)| css.split_once('}')).expect(rule).0;
        assert!(rule.contains("border: 1px solid var(--edge)"), "{rule}");
    }
}

#[test]
fn wm8_every_control_has_a_name_and_no_two_regions_have_the_same() {
    for (attributes, inside) in elements("button") {
        assert!(!text(inside).is_empty(), "{attributes}");
    }
    let labels = elements("label");
    for (_, inside) in &labels {
        assert!(!inside.contains("<button") && !text(inside).is_empty(), "{inside}");
    }
    let fields = labels.iter().map(|(_, inside)| inside.matches("<input").count());
    let fields: usize = fields.sum();
    assert_eq!(fields, PAGE.matches("<input").count(), "a field without a label");
    let selects: usize = labels.iter().map(|(_, inside)| inside.matches("<select").count()).sum();
    assert_eq!(selects, PAGE.matches("<select").count(), "a field without a label");
    let names: Vec<_> = labels.iter().map(|(_, inside)| text(inside)).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");

    let mut regions = BTreeSet::new();
    let scrolled = elements("div").into_iter().filter(|(is, _)| is.contains("role=\"region\""));
    for (is, _) in elements("section").into_iter().chain(elements("form")).chain(scrolled) {
        let title = attribute(is, "aria-label").or(attribute(is, "aria-labelledby"));
        assert!(regions.insert(title.unwrap_or_else(|| panic!("no name: {is}"))), "twice: {is}");
    }
}

#[test]
fn wm8_what_happens_is_announced() {
    for id in ["said", "instance", "notice"] {
        let before = PAGE.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
        let tags = before.0.rsplit_once("role=\"").map_or("", |(_, tags)| tags).to_owned();
        let own = before.1.split('>').next().unwrap_or_default();
        let live = |text: &str| {
            text.starts_with("status")
                || text.contains("role=\"status")
                || text.contains("role=\"alert")
        };
        assert!(live(&tags) || live(own), "{id} is not in a live region");
    }
}
