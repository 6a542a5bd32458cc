//! All integration tests, one program: linking costs more than running most of them.

mod attention;
mod commands;
mod common;
mod compare;
mod contribution;
mod devices;
mod docs;
mod explore;
mod figures;
mod folders;
mod generate;
mod gguf;
mod gradients;
#[cfg(feature = "hub")]
mod hub;
mod layouts;
mod library;
mod manners;
mod metrics;
mod needle;
mod nll;
mod python;
mod reference;
mod replicates;
mod report;
mod resume;
mod ruler;
mod seeds;
mod shots;
mod sinks;
mod specs;
mod train;
mod trained;
mod treatments;
mod trust;
mod variants;
