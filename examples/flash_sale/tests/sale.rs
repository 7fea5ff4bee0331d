//! What the program shows is so: more is sold than there is without the lock, and exactly that with it.

use std::process::Command;

use distlock_testkit::RedisServer;

/// The figures "sold" of both sales.
fn hold(url: Option<&str>) -> [u64; 2] {
    let mut sale = Command::new(env!("CARGO_BIN_EXE_flash_sale"));
    sale.args(["--stock", "60", "--workers", "20"]).env_remove("DISTLOCK_URL");
    if let Some(url) = url {
        sale.env("DISTLOCK_URL", url);
    }
    let output = sale.output().expect("it starts");
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    let (_, table) = said.split_once("oversold").expect("the table");
    ["without the lock", "with the lock"].map(|sale| {
        let row = table.lines().find_map(|line| line.trim().strip_prefix(sale)).expect("a row");
        let sold = row.split_whitespace().nth(1).and_then(|sold| sold.parse().ok());
        sold.unwrap_or_else(|| panic!("{row}"))
    })
}

#[test]
fn one_process_sells_what_there_is() {
    let [without, with] = hold(None);
    assert!(without > 60, "{without}");
    assert_eq!(with, 60);
}

#[test]
fn several_processes_sell_what_there_is() {
    let server = RedisServer::start();
    let [without, with] = hold(Some(&server.url()));
    assert!(without > 60, "{without}");
    assert_eq!(with, 60);
}
