//! Floats cannot be part of a key: equal amounts print differently (`0.1 + 0.2` as
//! `0.30000000000000004`, `-0.0` not as `0.0`), so that callers that mean the same amount would take different
//! locks.
//! A precision only makes that rarer.
//!
//! Rust cannot say "any type that prints, but not these two". What it can: a value stands in a key
//! [as](Stands) a `u8` whatever it is, and a float also as an `i32`, while generated code leaves the
//! choice to an integer literal. Of all types but floats there is one way, and the literal is a
//! `u8`. Of a float there are two; nothing decides between them, so the literal becomes what an
//! integer is by default, an `i32`, and as such a float is not [`Accepted`]. Unlike a choice by method
//! call this also waits for types that are known only later (`let id = text.parse()?; key!("{id}")`).

use std::borrow::Cow;
use std::cell::{Ref, RefMut};
use std::num::{Saturating, Wrapping};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// `f32` and `f64`, and what prints as one.
pub trait Float {}

impl Float for f32 {}
impl Float for f64 {}

macro_rules! prints_as_what_is_in_it {
    ($($outer:ty),*) => {$(
        impl<T: Float + ?Sized> Float for $outer {}
    )*};
}

prints_as_what_is_in_it!(
    &T,
    &mut T,
    Box<T>,
    Rc<T>,
    Arc<T>,
    Ref<'_, T>,
    RefMut<'_, T>,
    MutexGuard<'_, T>,
    RwLockReadGuard<'_, T>,
    RwLockWriteGuard<'_, T>
);
impl<P: Float> Float for Pin<P> {}
impl<T: Float> Float for Wrapping<T> {}
impl<T: Float> Float for Saturating<T> {}
impl<T: Float + ToOwned> Float for Cow<'_, T> {}

/// The ways in which a value can stand in a key.
pub trait Stands<As> {}

impl<T: ?Sized> Stands<u8> for T {}
impl<T: Float + ?Sized> Stands<i32> for T {}

/// The ways that are in order.
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be part of a lock key: a float prints differently for equal amounts",
    label = "a float",
    note = "lock a whole number of the smallest unit: `key(\"…{{}}\", cents)`"
)]
pub trait Accepted<T: ?Sized> {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized> Accepted<T> for u8 {}
// With one alone a literal would be taken for it.
#[diagnostic::do_not_recommend]
impl<T: ?Sized> Accepted<T> for u16 {}
// For no value that prints, but that is not known before the value's type is: of a value whose type is
// never known rustc thus asks for the type, and does not call it a float.
#[diagnostic::do_not_recommend]
impl<T: Unprintable + ?Sized> Accepted<T> for i32 {}

/// Two types, so that neither is taken for one that is not known.
pub trait Unprintable {}

impl Unprintable for () {}
impl Unprintable for ((),) {}
