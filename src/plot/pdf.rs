//! PDF files of figures, made with svg2pdf.

use super::figure::Figure;
use anyhow::{Context, Result};
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, TextStr};
use resvg::usvg::Tree;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns a PDF with one page of `size` points. `drawing` is the figure's SVG; the recipe is the subject of the
/// document.
pub(super) fn page(figure: &Figure, drawing: &Tree, size: (f32, f32), recipe: &[(String, String)]) -> Result<Vec<u8>> {
    let (drawing, root) = svg2pdf::to_chunk(drawing, svg2pdf::ConversionOptions::default())
        .map_err(|e| anyhow::anyhow!("cannot make a PDF of the figure: {e}"))?;
    let mut next = Ref::new(drawing.refs().map(Ref::get).max().unwrap_or(0) + 1);
    let [catalog, pages, page, content, info] = [(); 5].map(|()| next.bump());

    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let mut sheet = pdf.page(page);
    sheet.media_box(Rect::new(0.0, 0.0, size.0, size.1)).parent(pages).contents(content);
    let mut resources = sheet.resources();
    resources.x_objects().pair(Name(b"Figure"), root);
    resources.finish();
    sheet.finish();
    let mut stream = Content::new();
    stream.transform([size.0, 0.0, 0.0, size.1, 0.0, 0.0]).x_object(Name(b"Figure"));
    pdf.stream(content, &stream.finish());
    pdf.extend(&drawing);
    let recipe: Vec<String> = recipe.iter().map(|(keyword, text)| format!("{keyword}: {text}")).collect();
    pdf.document_info(info).title(TextStr(&figure.title)).subject(TextStr(&recipe.join("; ")));
    let ids: Vec<i32> = pdf.refs().map(Ref::get).collect();
    canonical(&pdf.finish(), &ids, (catalog.get(), info.get())).context("the figure is no PDF: this is a bug")
}

/// A PDF object: its dictionary or array as text, and its stream.
type Object<'a> = (String, &'a [u8]);

/// Renumbers the objects of a PDF in the order in which they are reached from the catalogue, so that equal figures have
/// equal bytes: svg2pdf writes fonts and resources in the random order of hash maps. `ids` are the objects in the order
/// of the file. `None` if the file does not have these objects.
fn canonical(file: &[u8], ids: &[i32], (catalog, info): (i32, i32)) -> Option<Vec<u8>> {
    let (head, objects) = split(file, ids)?;
    let mut order: Vec<i32> = Vec::new();
    let mut waiting = vec![catalog];
    while let Some(id) = waiting.pop() {
        if !order.contains(&id) {
            order.push(id);
            let (text, _) = objects.get(&id)?;
            waiting.extend(pieces(text).filter_map(|(_, referred)| referred).collect::<Vec<i32>>().into_iter().rev());
        }
    }
    order.push(info);
    let numbers = order.iter().enumerate().map(|(i, &id)| (id, i + 1)).collect();

    let mut written = head.to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f\r\n", order.len() + 1);
    for (i, id) in order.iter().enumerate() {
        let (text, stream) = objects.get(id)?;
        write!(table, "{:010} 00000 n\r\n", written.len()).ok()?;
        written.extend(format!("{} 0 obj\n", i + 1).into_bytes());
        // The recipe may contain text that looks like a reference.
        let text = if *id == info { text.clone() } else { renumbered(text, &numbers) };
        written.extend(text.into_bytes());
        written.extend_from_slice(stream);
        written.extend_from_slice(b"\nendobj\n\n");
    }
    let (size, start) = (order.len() + 1, written.len());
    write!(
        table,
        "trailer\n<<\n  /Size {size}\n  /Root 1 0 R\n  /Info {} 0 R\n>>\nstartxref\n{start}\n%%EOF",
        size - 1
    )
    .ok()?;
    written.extend(table.into_bytes());
    Some(written)
}

/// Splits a file into the header before the first object, and the objects.
fn split<'a>(file: &'a [u8], ids: &[i32]) -> Option<(&'a [u8], BTreeMap<i32, Object<'a>>)> {
    let find = |what: &str, from: usize| {
        file[from..].windows(what.len()).position(|bytes| bytes == what.as_bytes()).map(|place| from + place)
    };
    let mut starts = Vec::new();
    for id in ids {
        starts.push(find(&format!("\n{id} 0 obj\n"), starts.last().copied().unwrap_or(0))? + 1);
    }
    starts.push(find("\nxref\n", *starts.last()?)?);
    let mut objects = BTreeMap::new();
    for (id, ends) in ids.iter().zip(starts.windows(2)) {
        let whole = &file[ends[0] + format!("{id} 0 obj\n").len()..ends[1]];
        let end = whole.windows(7).rposition(|bytes| bytes == b"\nendobj")?;
        let stream = whole[..end].windows(8).position(|bytes| bytes == b"\nstream\n").unwrap_or(end);
        let text = std::str::from_utf8(&whole[..stream]).ok()?;
        objects.insert(*id, (in_order(text), &whole[stream..end]));
    }
    Some((&file[..*starts.first()?], objects))
}

/// Sorts consecutive lines of a dictionary that refer to objects.
fn in_order(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let refers = |line: &str| line.ends_with(" 0 R");
    lines.chunk_by_mut(|a, b| refers(a) && refers(b)).for_each(|run| run.sort_unstable());
    lines.join("\n")
}

/// Splits a text at its references: the text before each of them, and the number of the object.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<i32>)> {
    let mut parts = text.split(" 0 R").peekable();
    std::iter::from_fn(move || {
        let part = parts.next()?;
        let before = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let referred = parts.peek().and_then(|_| part[before.len()..].parse().ok());
        Some((if referred.is_some() { before } else { part }, referred))
    })
}

fn renumbered(text: &str, numbers: &BTreeMap<i32, usize>) -> String {
    let number = |id: i32| numbers.get(&id).map_or(String::new(), |number| format!("{number} 0 R"));
    pieces(text).map(|(before, referred)| before.to_owned() + &referred.map_or(String::new(), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(order: [i32; 3], resources: [&str; 2]) -> (Vec<u8>, Vec<i32>) {
        let text = |id| match id {
            1 => format!("<<\n  /Pages 3 0 R\n  {}\n  {}\n>>", resources[0], resources[1]),
            2 => "<<\n  /Length 9\n>>\nstream\n\x01 1 0 R 2\nendstream".to_owned(),
            _ => "<<\n  /Subject (look at 2 0 R)\n>>".to_owned(),
        };
        let objects: String = order.map(|id| format!("\n{id} 0 obj\n{}\nendobj\n", text(id))).concat();
        (format!("%PDF\n{objects}\nxref\n").into_bytes(), order.to_vec())
    }

    #[test]
    fn the_order_of_objects_and_resources_does_not_matter() {
        let file = |order, resources| {
            let (file, ids) = document(order, resources);
            let whole = canonical(&file, &ids, (1, 3)).unwrap();
            String::from_utf8(whole).unwrap()
        };
        let one = file([1, 2, 3], ["/F0 2 0 R", "/F1 2 0 R"]);
        assert_eq!(one, file([2, 3, 1], ["/F1 2 0 R", "/F0 2 0 R"]));
        assert!(one.contains("stream\n\x01 1 0 R 2\n") && one.contains("(look at 2 0 R)"), "{one}");
        // The table says where the objects are.
        let places =
            one.lines().filter_map(|line| line.strip_suffix(" 00000 n").map(|at| at.parse::<usize>().unwrap()));
        for (i, place) in places.enumerate() {
            assert!(one[place..].starts_with(&format!("{} 0 obj\n", i + 1)), "{one}");
        }
    }
}
