//! Checking a store while it is open, beside its work: all that the last checkpoint left, from a
//! view of the index that stays as it is. Segments that the view needs are kept until it is done.

use crate::check::{Limits, Logged, Pace, check};
use crate::error::StoreError;
use crate::image::Image;
use crate::images::Pin;
use crate::log::Place;
use crate::open::new_core;
use crate::report::{Damage, Report};
use crate::segments::Segments;
use crate::state::Core;
use crate::store::Store;

/// A checker of an open store, which does not need the store itself.
#[derive(Debug)]
pub struct Checker {
    core: Core,
    segments: Segments,
    image: Option<Image>,
    needs_image: bool,
    pin: Pin,
}

impl Store {
    /// A checker of this store as its last checkpoint left it.
    pub fn checker(&self) -> Result<Checker, StoreError> {
        let engine = self.core.index.engine();
        Ok(Checker {
            core: new_core(engine.view()?, &self.options)?,
            segments: Segments::new(self.log.files().clone()),
            image: self.images.base().cloned(),
            needs_image: engine.is_file(),
            pin: self.images.pin(),
        })
    }

    /// Does what can be done about what a check has found: the index is made again, or its image.
    pub fn mend(&mut self, report: &Report) {
        let of_index = |damage: &Damage| {
            matches!(
                damage,
                Damage::Object { .. }
                    | Damage::Entry { .. }
                    | Damage::Count { .. }
                    | Damage::Engine { .. }
            )
        };
        if report.damages.iter().any(of_index) {
            self.core.index.engine().doubt();
        }
        let of_copy = |damage: &Damage| matches!(damage, Damage::Image { .. } | Damage::Log { .. });
        if report.damages.iter().any(of_copy) {
            self.images.spoil();
            self.image_if_due();
        }
    }
}

impl Checker {
    /// Checks everything. `pace` is called with how many bytes were looked at since the last call,
    /// and says whether to go on. `None`: it was stopped, or so much was changed meanwhile that it
    /// had to give way.
    #[must_use]
    pub fn run(&self, pace: &mut dyn FnMut(u64) -> bool) -> Option<Report> {
        let counters = &self.core.index.counters;
        if counters.next_vnode == 0 {
            // No checkpoint has been made yet.
            return Some(Report::default());
        }
        let log = Logged {
            segments: &self.segments,
            end: Place {
                segment: counters.segment,
                offset: counters.offset,
            },
            image: self.image.as_ref(),
            needs_image: self.needs_image,
        };
        let pin = &self.pin;
        let pace: Pace<'_> = &mut |bytes| pace(bytes) && !pin.is_broken();
        check(
            &self.core,
            &self.segments,
            Some(log),
            (Limits::default(), pace),
        )
    }
}
