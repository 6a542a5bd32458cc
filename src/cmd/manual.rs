//! `difftool completions` and `difftool man`.

use crate::bail_usage;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io::Write as _;

/// Prints the script for a shell.
///
/// # Errors
/// If stdout cannot be written.
pub(super) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new(); // the generator panics on a closed pipe
    clap_complete::generate(args.shell, &mut Cli::command(), "difftool", &mut script);
    Ok(crate::terminal::stdout().write_all(&script)?)
}

/// Prints a page, or writes all.
///
/// # Errors
/// A usage error if there is no such command; whatever cannot be written.
pub(super) fn man(args: &ManArgs) -> Result<()> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    if let Some(folder) = &args.out {
        let cannot = || format!("cannot write manual pages into {}", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        let page = folder.join("difftool.1");
        if page.exists() {
            bail_usage!("{} exists, and nothing is overwritten: name a new folder", page.display());
        }
        return clap_mangen::generate_to(cli, folder).with_context(cannot);
    }
    let command = match &args.command {
        None => cli,
        Some(name) => match cli.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                let names: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
                bail_usage!("no command `{name}`; there are {}", names.join(", "));
            }
        },
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(crate::terminal::stdout().write_all(&page)?)
}
