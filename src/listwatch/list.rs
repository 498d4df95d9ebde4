//! Lists, page by page. How many objects a page holds follows from how many bytes they have: the API server counts objects alone.

use std::time::Duration;

use kube::core::{Request, params::ListParams};
use serde::Deserialize;

use super::{Source, Watched, version};
use crate::client::{ReadError, Reader};
use leadership::budget::LARGE;

/// How many objects a page of a list holds at most.
const PAGE: u32 = 500;

/// How many objects the first page of a list holds: how large they are, only an answer tells.
const FIRST_PAGE: u32 = 100;

/// By how much pages grow and shrink at most, from one to the next.
const STEP: u32 = 4;

/// The wait before a page of a list is asked for once more.
const BREATH: Duration = Duration::from_millis(500);

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub metadata: ListMeta,
    /// An empty list of metadata has `null` here.
    pub items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub resource_version: String,
    #[serde(rename = "continue", default)]
    pub next: String,
}

/// Reads a whole collection, page by page: a consistent list, of which only what `keep` wants is kept. A page of large objects that
/// has too many bytes is asked for again with fewer objects.
///
/// # Errors
///
/// When a page cannot be read.
pub async fn list<T: Watched>(
    reader: &Reader,
    source: &Source,
    keep: impl Fn(&T) -> bool,
) -> Result<(Vec<T>, u64), ReadError> {
    let (labels, fields) = (source.labels.map(str::to_owned), source.fields.clone());
    let mut params = ListParams { label_selector: labels, field_selector: fields, ..ListParams::default() };
    let mut limit = FIRST_PAGE;
    let mut all = Vec::new();
    loop {
        params.limit = Some(limit);
        let (page, bytes): (List<T>, usize) = match read_page(reader, source, &params).await {
            Err(ReadError::TooLarge(_)) => {
                limit = (limit / STEP).max(1);
                continue;
            }
            page => page?,
        };
        all.extend(page.items.into_iter().flatten().filter(&keep));
        if page.metadata.next.is_empty() {
            return Ok((all, version(&page.metadata.resource_version)));
        }
        params.continue_token = Some(page.metadata.next);
        limit = next_limit(limit, bytes);
    }
}

/// Reads a page of a list, and says how many bytes it has. A page that cannot be read is asked for once more, but for the first.
async fn read_page<T: Watched>(
    reader: &Reader,
    source: &Source,
    params: &ListParams,
) -> Result<(List<T>, usize), ReadError> {
    let request = Request::new(source.path.as_str());
    let page = if source.metadata_only { request.list_metadata(params) } else { request.list(params) };
    let page = page.map_err(kube::Error::BuildRequest)?;
    let again = params.continue_token.is_some().then(|| page.clone());
    // One object cannot be split.
    let most = if params.limit == Some(1) { usize::MAX } else { LARGE };
    match (reader.read_page(page, most).await, again) {
        // It may be one of hundreds, all of which would have to be read again.
        (Err(error), Some(again)) if may_pass(&error) => {
            tokio::time::sleep(BREATH).await;
            reader.read_page(again, most).await
        }
        (page, _) => page,
    }
}

/// How many objects the next page holds, after one with this limit had so many bytes: as many as take half of what a page may have.
pub(super) fn next_limit(limit: u32, bytes: usize) -> u32 {
    let fit = LARGE / 2 * usize::try_from(limit).unwrap_or(usize::MAX) / bytes.max(1);
    u32::try_from(fit).unwrap_or(PAGE).clamp(1, PAGE.min(limit.saturating_mul(STEP)))
}

/// Whether the same request may well be granted a moment later.
fn may_pass(error: &ReadError) -> bool {
    match error {
        ReadError::Api(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        ReadError::Api(kube::Error::SerdeError(_)) | ReadError::TooLarge(_) => false,
        _ => true,
    }
}
