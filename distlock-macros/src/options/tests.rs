//! What stands in the attribute, right and wrong.

use std::time::Duration;

use super::*;

fn parse(args: &str) -> (Options, Vec<String>) {
    let mut errors = Errors::default();
    let options = Options::parse(args.parse().expect(args), &mut errors);
    (options, errors.messages())
}

#[test]
fn reads_every_option() {
    let (options, errors) = parse(
        r#"key = "order:{id}", ttl = "5s", wait = TWO, renew = false, manager = &self.locks,
           max_hold = "1m", min_hold = self.least(), on_lost = continue, reentrant = true,
           mode = read, permits = LIMIT, release = background, name = "n", prefix = "p", when = a && b, guard = lock, on_fail = skip, map_err = |e| e.into(),
           crate = ::other,"#,
    );
    assert_eq!(errors, [""; 0]);
    assert!(options.key.is_some() && options.manager.is_some() && options.krate.is_some());
    let literal = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(options.literal("ttl").map(|(time, _)| time), literal(5));
    assert_eq!(options.literal("max_hold").map(|(time, _)| time), literal(60));
    assert!(options.literal("wait").is_none() && options.literal("min_hold").is_none());
    assert!(options.name.is_some() && options.prefix.is_some());
    for (name, is_so) in [
        ("wait", (|value| matches!(value, Value::Time(Time::Expr(_)))) as fn(&Value) -> bool),
        ("min_hold", |value| matches!(value, Value::Time(Time::Expr(_)))),
        ("renew", |value| matches!(value, Value::Bool(false))),
        ("reentrant", |value| matches!(value, Value::Bool(true))),
        ("on_lost", |value| matches!(value, Value::Variant("OnLost", "Continue"))),
        ("mode", |value| matches!(value, Value::Variant("LockMode", "Read"))),
        ("permits", |value| matches!(value, Value::Number(_))),
        ("release", |value| matches!(value, Value::Variant("Release", "Background"))),
    ] {
        let setting = options.settings.iter().find(|setting| setting.name == name);
        assert!(setting.is_some_and(|setting| is_so(&setting.value)), "{name}");
    }
    assert!(options.when.is_some() && options.guard.is_some());
    assert!(matches!(options.on_fail, Some(OnFail::Skip(_))) && options.map_err.is_some());
}

#[test]
fn settings_come_in_the_order_of_the_table() {
    let (options, errors) = parse(r#"renew = false, wait = "1s", ttl = "5s""#);
    let names: Vec<&str> = options.settings.iter().map(|setting| setting.name).collect();
    assert_eq!((names, errors), (vec!["ttl", "wait", "renew"], vec![]));
}

#[test]
fn what_the_table_gives_as_an_example_is_accepted() {
    for row in TABLE.iter().filter(|row| row.example != "…") {
        let (_, errors) = parse(&format!("{} = {}", row.name, row.example.replace('…', "x")));
        assert_eq!(errors, [""; 0], "{} = {}", row.name, row.example);
    }
}

#[test]
fn no_wait_has_two_spellings() {
    for args in ["wait = none", r#"wait = "0s""#] {
        let (options, errors) = parse(args);
        let wait = options.literal("wait").map(|(time, _)| time);
        assert_eq!(wait, Some(Duration::ZERO), "{args}: {errors:?}");
    }
}

#[test]
fn mistakes_are_reported_together_and_parsing_goes_on() {
    let (options, errors) =
        parse(r#"ttl = "5", wiat = "2s", renew = "false", key = "{}", manager = m"#);
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(options.manager.is_some() && options.given("key").is_some());
}

#[test]
fn every_mistake_names_the_mend() {
    for (args, words) in [
        (r#""order:{id}""#, "write `key = \"order:{id}\"`"),
        ("key", "write `key = \"order:{order_id}\"`"),
        ("reentrant, key", "write `reentrant = true`"),
        ("key =", "a value for `key` is missing"),
        ("key = , ttl = 5", "a value for `key` is missing"),
        ("key = 5", "a text in quotes"),
        (r#"key = "a", key = "b""#, "given twice"),
        (r#"ttl: "5s""#, r#"write `ttl = "5s"`"#),
        ("key == 5", "with a plain `=`"),
        ("key => 5", "with a plain `=`"),
        (",", "before this comma"),
        ("@", "an option is expected here"),
        (r#"key = "a", "5s""#, "write `ttl = \"5s\"`"),
        (r#"key = "a", "b""#, "write `keys = [\"…\", \"b\"]`".trim_start_matches("write ")),
        ("wait = None", "write `wait = none`"),
        ("max_hold = None", "leave the option out"),
        ("guard = mut lock", "alone"),
        ("ttl = 5", "a text with its unit"),
        ("ttl = 5s", r#"in quotes: `ttl = "5s"`"#),
        (r#"ttl = "5ms""#, "at least 10ms"),
        ("ttl = none", "always has a `ttl`"),
        (r#"wait = "none""#, "without quotes"),
        (r#"wait = "2""#, "has no unit"),
        (r#"key = "a" ttl = "5s""#, "a comma is missing before this option"),
        (r#"key = "a"; ttl = "5s""#, "expected a comma"),
        (r#"key = "a:{}", id"#, r#"write `key("a:{}", id)`"#),
        (r#"key = "a:{}:{}", self.a(), b, wait = "1s""#, r#"write `key("a:{}:{}", self.a(), b)`"#),
        (r#"key = "a:{x}", x = self.a"#, r#"write `key("a:{x}", x = self.a)`"#),
        (r#"key = "a:{}", wait = "1s""#, "`{}` names nothing"),
        (r#"crate = "::other""#, "without quotes"),
        (r#"timeout = "2s""#, "called `wait`"),
        (r#"waitTime = "2s""#, "called `wait`"),
        (r#"leaseTime = "2s""#, "`renew = false`"),
        ("lockAtMostFor = 1", "`max_hold`"),
        ("lock_at_least_for = 1", "`min_hold`"),
        ("pool = x", "`manager`"),
        ("shared = true", "write `mode = read`"),
        ("read", "write `mode = read`"),
        ("lockType = READ", "called `mode`"),
        ("mode = shared", "write `read`"),
        ("mode = LockMode::Read", "write `read`"),
        (r#"mode = "read""#, "write `read`, without quotes"),
        ("mode = |e| e", "write `read`"),
        ("limit = 5", "called `permits`"),
        ("max_concurrent = 5", "called `permits`"),
        ("concurrency = 5", "called `permits`"),
        ("count = 5", "called `permits`"),
        ("slots = 5", "called `permits`"),
        ("max_leases = 5", "called `permits`"),
        ("maxCount = 5", "called `permits`"),
        ("permit = 5", "did you mean `permits`?"),
        ("permits = 0", "write at least `permits = 1`"),
        ("permits = 0x0_u32", "write at least `permits = 1`"),
        ("permits = -1", "`permits = 5`"),
        ("permits = 1.5", "`permits = 5`"),
        (r#"permits = "5""#, "write `5`, without quotes"),
        (r#"permits = "five""#, "`permits = 5`"),
        ("permits = none", "leave the option out"),
        ("keys = []", "name at least one"),
        (r#"keys = "a""#, "write `key = \"a\"`"),
        (r#"keys = ("a", "b")"#, "in brackets"),
        (r#"key = ["a", "b"]"#, "`keys = […]`"),
        ("key = |e| e", "a text in quotes"),
        ("key()", "say what to lock"),
        ("key(id)", "a text in quotes comes first"),
        (r#"key("{}:{}", id)"#, "no value number 2: only 1 value follows"),
        (r#"key("{}", id, other)"#, "no place in the text"),
        (r#"key("{}", x = id, other)"#, "come before"),
        (r#"key("{:1$}", id)"#, "a name"),
        (r#"ttl = "400d""#, "at most 365 days"),
        (r#"max_hold = "1ms""#, "at least 10ms"),
        ("max_hold = none", "leave the option out"),
        (r#"on_lost = "cancel""#, "write `cancel`, without quotes"),
        ("on_lost = abort", "write `cancel`"),
        ("on_lost = |e| e", "write `cancel`"),
        (r#"release = "wait""#, "write `wait`, without quotes"),
        ("release = later", "write `wait`"),
        ("release", "write `release = background`"),
        ("relase = wait", "did you mean `release`?"),
        (r#"on_fail = "skip""#, "write `skip`, without quotes"),
        ("on_fail = None", "write `on_fail = |_| None`"),
        ("on_fail = Ok(())", "write `on_fail = |_| Ok(())`"),
        ("on_fail = || 5", "write `on_fail = |error| …`"),
        ("on_fail = async |e| 5", "without `async`"),
        ("map_err = Err(5)", "write `map_err = |_|"),
        (r#"guard = "lock""#, "write `lock`, without quotes"),
        ("guard = a.b", "`guard = lock`"),
        ("guard = _", "`guard = lock`"),
        ("name = pay", "a text in quotes"),
        (r#"name = """#, "a text in quotes"),
        (r#"when = "x > 5""#, "without quotes"),
        (r#"prefix = """#, "write `prefix = none`"),
        (r#"prefix = "none""#, "write `none`, without quotes"),
        (r#"prefix = "{shop}""#, "must not contain"),
        (r#"prefix = "shop:""#, "without the `:`"),
        ("prefix = 5", "a prefix is a text"),
        ("reentrant = 1", "write `true` or `false`"),
        ("tll = 1", "did you mean `ttl`?"),
        ("crat = ::a", "did you mean `crate`?"),
        ("wait = 0", "write `wait = none`"),
        ("wait = -1", "a text with its unit"),
        (r#"min_hold = "400d""#, "at most 365 days"),
        ("on_fail = Skip", "write `skip`"),
        (r#"on_fail = "busy""#, r#"`|_| "busy"`"#),
        ("on_fail = vec![]", "write `on_fail = |_| vec!"),
        ("on_fail = panic!()", "write `on_fail = |_| panic!"),
        ("prefix = None", "write `prefix = none`"),
        ("bananas = 1", "there are `key`, `keys`"),
    ] {
        let (_, errors) = parse(args);
        assert!(errors.iter().any(|e| e.contains(words)), "{args}: {errors:?}");
    }
}
