//! The report on a value for which no order was found.

use super::Value;
use super::linear::Turn;
use crate::wrong::Wrong;

/// All turns on the value in the order of time, with a mark at the one that cannot be.
pub(super) fn explain(value: &Value, turns: &[Turn], index: usize) -> Wrong {
    let bad = &turns[index];
    let mut text = format!("{value:?}: h{} cannot have {:?}", bad.host, bad.act);
    let mut order: Vec<&Turn> = turns.iter().collect();
    order.sort_by_key(|turn| turn.begin);
    for turn in order {
        let end = if turn.end == u64::MAX {
            "never".into()
        } else {
            turn.end.to_string()
        };
        let mark = if std::ptr::eq(turn, bad) {
            " <== impossible"
        } else {
            ""
        };
        text += &format!(
            "\n    {:>7} .. {end:>7} h{} {:?}{mark}",
            turn.begin, turn.host, turn.act
        );
    }
    let class = match value {
        Value::Unit(..) => "a unit of a file cannot have been so",
        Value::Size(_) => "the size of a file cannot have been so",
        Value::Mode(_) => "the mode of a file cannot have been so",
        Value::Label(_) => "an extended attribute cannot have been so",
        Value::Name(..) => "a name cannot have been so",
    };
    Wrong::new(class, text)
}
