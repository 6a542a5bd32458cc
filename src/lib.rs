//! **difftool** measures attention noise: how much attention of a transformer reaches the answer, how much is wasted on
//! irrelevant context, and whether differential attention does better.
//!
//! The program, in the order data flows through it:
//!
//! > A [`run`] makes prompts ([`text`]) with known positions of their answers; a model ([`engine`]) computes heads from a prompt;
//! > a head is a *signed mixture of softmax rows*, which [`treatments`] change; [`measures`] look at rows while they are
//! > computed; what they learned becomes records, which [`results`] selects, pairs, estimates, tabulates and compares; results
//! > are drawn ([`figures`], [`plot`]), summarised in a report and displayed in an explorer.
//!
//! [`train`] trains matched models to measure, and [`commands`] is the command line, the only module that prints. Packages of
//! their own, under `crates/`: [`names`] has what everybody says, [`base`] errors and files, [`stats`] the statistics, [`text`]
//! the prompts, [`engine`] models and attention, [`plot`] the drawing.

pub mod commands;
pub(crate) mod explore;
pub mod figures;
pub(crate) mod html;
pub mod machine;
pub mod measures;
pub(crate) mod report;
pub mod results;
pub mod run;
pub mod train;
pub mod treatments;
