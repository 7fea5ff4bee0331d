//! What the attribute makes of an example, formatted: for people to read, and to see it change.

use std::path::Path;

/// The example at the top of the documentation.
const ARGS: &str = r#"key = "order:{order_id}", ttl = "5s", wait = "2s""#;
const ITEM: &str = "async fn pay(order_id: u64) -> Result<Receipt, PayError> { \
                    charge(order_id).await \
                    }";
const FILE: &str = "snapshots/example.rs";

#[test]
fn the_example_expands_to_what_is_on_file() {
    let expanded = crate::lock_function(ARGS.parse().expect(ARGS), ITEM.parse().expect(ITEM));
    let expanded = prettyplease::unparse(&syn::parse2(expanded).expect("a function"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &expanded).expect("the snapshot can be written");
    }
    let on_file = std::fs::read_to_string(&file).expect(FILE);
    assert!(
        expanded == on_file,
        "{FILE} differs: look at the new expansion, and take it over with WRITE_SNAPSHOTS=1\n\
         {expanded}"
    );
    let lines = expanded.lines().count();
    assert!(lines <= 60, "{lines} lines are too many to read");
}
