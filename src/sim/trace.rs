use std::path::Path;

use super::file;
use super::scenario::Error;

/// In bytes, and in rows: as many as there may be requests.
const MOST_BYTES: u64 = 512 << 20;
const MOST_ROWS: usize = 20_000_000;

/// A table of numbers: the columns of a CSV file with a header. Other columns may be
/// there as long as nobody asks for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<f64>>,
    /// What is wrong with each column, if it is not all numbers.
    faults: Vec<Option<String>>,
}

impl Trace {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let named = |error: &dyn std::fmt::Display| Error(format!("{}: {error}", path.display()));
        let content = file::read(path, MOST_BYTES).map_err(|error| named(&error))?;
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content.as_slice());
        let header = reader.headers().map_err(|error| named(&error))?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        let mut faults = vec![None; columns.len()];
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(|error| named(&error))?;
            let line = row.position().map_or(0, csv::Position::line);
            let mut numbers = Vec::with_capacity(columns.len());
            for ((field, column), fault) in row.iter().zip(&columns).zip(&mut faults) {
                let number = field.parse::<f64>().ok().filter(|number| number.is_finite());
                if number.is_none() && fault.is_none() {
                    let path = path.display();
                    *fault = Some(format!(
                        "{path}, line {line}: {column} must be a finite number, got {field:?}"
                    ));
                }
                numbers.push(number.unwrap_or(0.0));
            }
            rows.push(numbers);
            if rows.len() > MOST_ROWS {
                return Err(named(&format!("more than {MOST_ROWS} rows")));
            }
        }
        Ok(Self { columns, rows, faults })
    }

    /// The position of a column of numbers.
    pub(super) fn column(&self, name: &str) -> Result<usize, Error> {
        let position = self.columns.iter().position(|column| column == name).ok_or_else(|| {
            Error(format!("the trace has no column {name:?}, it has {}", self.columns.join(", ")))
        })?;
        match self.faults.get(position) {
            Some(Some(fault)) => Err(Error(fault.clone())),
            _ => Ok(position),
        }
    }

    /// The position of a column of moments, which are not negative and in order: of
    /// equal ones too unless `each_later`.
    pub(super) fn moments(&self, name: &str, each_later: bool) -> Result<usize, Error> {
        let position = self.column(name)?;
        let mut last = None;
        for row in &self.rows {
            let at = row[position];
            let is_in_order =
                last.is_none_or(|last| if each_later { last < at } else { last <= at });
            if at < 0.0 || !is_in_order {
                let later = if each_later { "each later than the one before" } else { "in order" };
                return Err(Error(format!(
                    "{name} of the trace must be seconds from 0 on, {later}, got {at}"
                )));
            }
            last = Some(at);
        }
        Ok(position)
    }
}
