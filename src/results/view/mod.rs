//! Views: the tables of a run as data. A command prints them when its run ends, and a report shows the same ones from its folder.

pub(crate) mod ablate;
mod cases;
pub(crate) mod differences;
pub(crate) mod each_head;
mod heads;
mod maps;
pub(crate) mod nll;
mod outliers;
mod shots;
mod summary;

use crate::results::CommandName;
pub(crate) use differences::{difference_cell, differences, group_value, Detail};
pub(crate) use heads::HEAD_ROLES;
pub(crate) use shots::robustness;
pub(crate) use summary::{main_differences, main_rows, main_table, next};

use super::table::Table;
use super::{within, Frame};

/// Returns the tables of what conditions cost that an ablation has numbers for, the main one first.
fn ablation(frame: &Frame) -> Vec<Table> {
    let costs =
        [ablate::conditions(frame), ablate::attribution(frame), ablate::heads_out(frame), each_head::strongest(frame)];
    costs.into_iter().chain([each_head::predictors(frame), ablate::contrasts(frame)]).flatten().collect()
}

/// Returns every table that a run has numbers for, the main one first.
pub(crate) fn tables(frame: &Frame) -> Vec<Table> {
    let mut tables: Vec<Table> = main_table(frame).into_iter().collect();
    if frame.command() == Some(CommandName::Ablate) {
        tables.extend(ablation(frame).into_iter().skip(1));
    } else {
        tables.extend(differences(&frame.rows(None), &within::GROUPS, Detail::Full));
    }
    tables.extend(cases::tables(frame));
    tables.extend(nll::tables(frame));
    tables.extend(outliers::tables(frame));
    tables.extend(heads::tables(frame));
    for table in tables.iter_mut().skip(1).filter(|table| table.id != "differences") {
        table.detail = true;
    }
    tables
}
