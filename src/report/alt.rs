//! What a figure shows, for those who do not see it: what kind of picture it is, and its main numbers, from the tables that
//! have them all.

use super::figure::Figure;
use crate::tables::{Cell, Role, Sheet, ROLES};

/// Rows of a table that are told one by one; of more the least and the most.
const ROWS: usize = 6;

/// What the figures of a command show, by the beginning of their names, and where their numbers are.
struct Shown {
    file: &'static str,
    what: &'static str,
    numbers: &'static [Numbers<'static>],
}

/// The main numbers of a table.
struct Numbers<'a> {
    /// Its id.
    table: &'a str,
    /// Columns, by their names for programs.
    columns: &'a [&'a str],
    /// Only rows that have one of these words in the column of this name: the first of them that is there.
    only: Option<(&'a str, &'a [&'a str])>,
}

const fn all<'a>(table: &'a str, columns: &'a [&'a str]) -> Numbers<'a> {
    Numbers { table, columns, only: None }
}

const SHOWN: [Shown; 10] = [
    Shown {
        file: "accuracy",
        what: "Needles found, in percent, by depth of the answer and number of needles",
        numbers: &[all("accuracy", &["exact"]), all("depth", &["exact"])],
    },
    Shown {
        file: "allocation",
        what: "Shares of the heads' output, and of their weights, by region of the prompt and depth",
        numbers: &[Numbers {
            table: "attention",
            columns: &["answer", "noise"],
            only: Some(("reading", &["out", "|a|"])),
        }],
    },
    Shown {
        file: "heads-out",
        what: "What is left when heads are taken out, the best ones and random ones",
        numbers: &[all("heads-out", &["best_exact_change", "random_exact_change"])],
    },
    Shown {
        file: "heads",
        what: "A grid of all layers and heads, coloured by what they are for",
        numbers: &[all("heads", &["share_out[answer]", "share_abs[answer]"])],
    },
    Shown {
        file: "heatmap",
        what:
            "Attention maps: queries from top to bottom, keys from left to right, brighter where the weight is larger",
        numbers: &[all("drawn", &["share_out[answer]", "share_out[filler]", "share_out[question]"])],
    },
    Shown {
        file: "bits",
        what: "Accuracy and what else is left, by bits of the attention logits",
        numbers: &[all("accuracy", &["exact"]), all("fidelity", &["total_variation"])],
    },
    Shown {
        file: "ccdf",
        what: "How often a logit or hidden state is larger than a size, on logarithmic axes",
        numbers: &[all("outliers", &["top_1", "median"])],
    },
    Shown {
        file: "nll",
        what: "Mean negative log-likelihood by position in the text, in nats",
        numbers: &[all("nll", &["nll_nats"]), all("nll-positions", &["nll_nats"])],
    },
    Shown {
        file: "shots",
        what: "Accuracy by number of examples, for each of their orders, and the best arrangement less the worst",
        numbers: &[all("shots", &["exact", "best_less_worst"])],
    },
    Shown {
        file: "conditions",
        what: "What each treatment costs: differences to the untreated passes with their intervals",
        numbers: &[all("conditions", &["exact", "exact_change"])],
    },
];

impl Figure {
    /// What is seen, of which models, its main numbers, and where all of them are.
    pub(super) fn alt(&self, models: &[&str], sheets: &[Sheet]) -> String {
        if let Some(role) = self.role() {
            let what = format!("A grid of all layers and heads, coloured by {}: {}", role.name, role.what);
            let numbers = Numbers { only: Some(("role", &[role.name])), ..all("roles", &["score"]) };
            return self.told(&what, &[numbers], models, sheets);
        }
        let found = SHOWN.iter().find(|shown| self.file.starts_with(shown.file));
        let (what, numbers) = found.map_or(("Figure", &[][..]), |shown| (shown.what, shown.numbers));
        self.told(what, numbers, models, sheets)
    }

    /// The role that heads are coloured by: of `heads-previous-token.png` previous token.
    fn role(&self) -> Option<&'static Role> {
        let name = self.file.strip_prefix("heads-")?.strip_suffix(".png")?;
        ROLES.iter().find(|role| role.name.replace(' ', "-") == name)
    }

    fn told(&self, what: &str, numbers: &[Numbers<'_>], models: &[&str], sheets: &[Sheet]) -> String {
        let of = if models.is_empty() { String::new() } else { format!(", for {}", models.join(" and ")) };
        let pooled = self.pooling.as_ref().map(|pooling| format!(" ({pooling})")).unwrap_or_default();
        let there = |numbers: &Numbers<'_>| {
            let sheet = sheets.iter().find(|sheet| sheet.id == numbers.table)?;
            Some((numbers.words(sheet)?, sheet.title))
        };
        let there: Vec<(String, &str)> = numbers.iter().filter_map(there).collect();
        let (told, titles): (Vec<String>, Vec<&str>) = there.into_iter().unzip();
        let told: String = told.iter().map(|words| format!(" {words}.")).collect();
        let where_all = match titles.as_slice() {
            [] => String::new(),
            [one] => format!(" The numbers are in the table {one}."),
            several => format!(" The numbers are in the tables {}.", several.join(", ")),
        };
        format!("{what}{of}{pooled}.{told}{where_all}")
    }
}

impl Numbers<'_> {
    /// `By depth: diff, 4096 tokens: accuracy 80.0 % [49.0, 94.3]; …`; nothing if the table has no such numbers.
    fn words(&self, sheet: &Sheet) -> Option<String> {
        let place = |name: &&str| sheet.columns.iter().position(|column| column.name == **name);
        let columns: Vec<usize> = self.columns.iter().filter_map(place).collect();
        let (&first, rows) = (columns.first()?, self.rows(sheet));
        let row = |row: &[Cell]| {
            let numbers: Vec<String> = columns.iter().filter_map(|&at| number(sheet, row, at)).collect();
            format!("{}: {}", sheet.about(row), numbers.join(", "))
        };
        let told = match rows.as_slice() {
            [] => return None,
            few if few.len() <= ROWS => few.iter().map(|cells| row(cells)).collect::<Vec<_>>().join("; "),
            many => {
                let size = |row: &&&[Cell]| row[first].exact.unwrap_or_default();
                let least = many.iter().min_by(|a, b| size(a).total_cmp(&size(b)))?;
                let most = many.iter().max_by(|a, b| size(a).total_cmp(&size(b)))?;
                format!("of {} rows the least is {}; the most {}", many.len(), row(least), row(most))
            }
        };
        Some(format!("{}: {told}", sheet.title))
    }

    /// The rows that are meant and have a first number.
    fn rows<'a>(&self, sheet: &'a Sheet) -> Vec<&'a [Cell]> {
        let place = |name: &str| sheet.columns.iter().position(|column| column.name == name);
        let first = self.columns.iter().find_map(|name| place(name));
        let has_number = |row: &&[Cell]| first.is_some_and(|at| row[at].exact.is_some());
        let all = sheet.rows.iter().map(Vec::as_slice).filter(has_number);
        let Some((at, words)) = self.only.and_then(|(name, words)| Some((place(name)?, words))) else {
            return all.collect();
        };
        let of = |word: &&str| all.clone().filter(|row| row[at].text == **word).collect::<Vec<_>>();
        words.iter().map(of).find(|rows| !rows.is_empty()).unwrap_or_default()
    }
}

/// `accuracy 80.0 % [49.0, 94.3]`.
fn number(sheet: &Sheet, row: &[Cell], at: usize) -> Option<String> {
    let cell = &row[at];
    cell.exact?;
    let column = &sheet.columns[at];
    let (name, unit) = match column.heading.strip_suffix(" %") {
        Some(name) => (name, " %"),
        None => (column.heading.as_str(), if column.name.starts_with("share_") { " %" } else { "" }),
    };
    Some(format!("{name} {}{unit} {}", cell.text, cell.aside).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{numbers, words};

    fn figure(file: &str) -> Figure {
        Figure { file: file.into(), width: 1, height: 1, pooling: None, uri: String::new() }
    }

    fn sheet(rows: &[(&str, f64)]) -> Sheet {
        let columns = vec![words("model").key(), numbers("N").key(), numbers("accuracy %").named("exact")];
        let row = |&(model, x): &(&str, f64)| {
            let accuracy = Cell { aside: "[1.0, 99.0]".into(), ..Cell::number(Some(x), |x| format!("{x:.1}")) };
            vec![Cell::words(model), Cell::count(Some(1)), accuracy]
        };
        Sheet::new("accuracy", "Answers", String::new(), columns, rows.iter().map(row).collect())
    }

    #[test]
    fn a_figure_is_told_with_its_numbers_and_their_intervals() {
        let alt = figure("accuracy.png").alt(&["diff"], &[sheet(&[("diff", 80.0)])]);
        let want = "Needles found, in percent, by depth of the answer and number of needles, for diff. \
                    Answers: diff, N=1: accuracy 80.0 % [1.0, 99.0]. The numbers are in the table Answers.";
        assert_eq!(alt, want);
    }

    #[test]
    fn of_many_rows_the_least_and_the_most_are_told() {
        let rows: Vec<(&str, f64)> = (0..9).map(|i| (["a", "b", "c"][i % 3], 10.0 * ((i * 4) % 9) as f64)).collect();
        let alt = figure("accuracy.png").alt(&[], &[sheet(&rows)]);
        assert!(alt.contains("of 9 rows the least is a, N=1: accuracy 0.0 %"), "{alt}");
        assert!(alt.contains("; the most c, N=1: accuracy 80.0 %"), "{alt}");
    }

    #[test]
    fn a_figure_of_a_role_tells_the_heads_of_that_role() {
        let columns = vec![words("role").key(), words("head").key(), numbers("score")];
        let row = |role: &str, head: &str| vec![Cell::words(role), Cell::words(head), Cell::count(Some(7))];
        let rows = vec![row("induction", "2.0"), row("previous token", "1.3")];
        let alt =
            figure("heads-previous-token.png").alt(&[], &[Sheet::new("roles", "Roles", String::new(), columns, rows)]);
        assert!(
            alt.starts_with("A grid of all layers and heads, coloured by previous token: share on the token before")
        );
        assert!(alt.contains("Roles: previous token, head 1.3: score 7.") && !alt.contains("induction"), "{alt}");
    }

    #[test]
    fn every_command_that_draws_has_words_for_its_figures() {
        let names =
            ["accuracy", "allocation", "heads", "heatmap", "bits", "ccdf", "nll", "shots", "heads-out", "conditions"];
        for name in names {
            let alt = figure(&format!("{name}.png")).alt(&[], &[]);
            assert!(!alt.starts_with("Figure"), "{name}: {alt}");
        }
    }

    #[test]
    fn a_figure_without_tables_says_what_it_is() {
        let nll = "Mean negative log-likelihood by position in the text, in nats.";
        assert_eq!(figure("nll.png").alt(&[], &[]), nll);
        assert_eq!(figure("other.png").alt(&["a", "b"], &[]), "Figure, for a and b.");
    }
}
