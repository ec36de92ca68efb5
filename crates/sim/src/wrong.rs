//! The failure of a run, and its kind.

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The kind of violation: the sentence that tells it, without what differs from run to run. Two
    /// runs that fail with the same kind fail in the same way.
    pub(crate) class: String,
    /// The failure, for people.
    pub(crate) what: String,
}

impl Wrong {
    pub(crate) fn new(class: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            what: what.into(),
        }
    }
}

/// A [`Wrong`] whose kind is the text before anything is put into it.
macro_rules! wrong {
    ($text:literal $($values:tt)*) => {
        $crate::wrong::Wrong::new($text, format!($text $($values)*))
    };
}
pub(crate) use wrong;

#[cfg(test)]
mod tests {
    #[test]
    fn what_differs_does_not_change_the_kind() {
        let torn = |unit: u64| wrong!("unit {unit} is {}", "torn");
        assert_eq!(torn(1).class, torn(2).class);
        assert_eq!(torn(1).what, "unit 1 is torn");
        assert_ne!(torn(1), torn(2));
        assert_ne!(torn(1).class, wrong!("a unit is lost").class);
    }
}
