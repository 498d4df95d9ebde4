//! Lists, page by page. The number of objects per page follows from their size, because the API server cannot limit a page in bytes.

use std::time::Duration;

use kube::core::{Request, params::ListParams};
use serde::Deserialize;

use super::Source;
use crate::{
    budget::LARGE,
    client::{ReadError, Reader},
    meta::{Watched, version},
};

/// The most objects in a page.
const MAX_PAGE: u32 = 500;

/// The objects in the first page, when their size is not known yet.
const FIRST_PAGE: u32 = 100;

/// The factor by which pages grow and shrink at most.
const STEP: u32 = 4;

/// The wait before a failed page is requested again.
const PAGE_RETRY: Duration = Duration::from_millis(500);

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct List<T> {
    pub metadata: ListMeta,
    /// `null` in an empty list of metadata. An answer without this field is no list.
    #[serde(deserialize_with = "Option::deserialize")]
    pub items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub resource_version: String,
    #[serde(rename = "continue", default)]
    pub next: String,
}

/// Reads a whole collection, page by page. Returns the objects that `keep` accepts, all as of the returned version. A page with too many
/// bytes, and a later page that takes too long, is requested again with fewer objects.
pub async fn list<T: Watched>(
    reader: &Reader,
    source: &Source,
    mut keep: impl FnMut(&T) -> bool,
) -> Result<(Vec<T>, u64), ReadError> {
    let label_selector = source.labels.clone();
    let mut params = ListParams { label_selector, ..ListParams::default() };
    let (mut limit, mut most) = (FIRST_PAGE, MAX_PAGE);
    let mut all = Vec::new();
    loop {
        params.limit = Some(limit);
        let (page, bytes): (List<T>, usize) = match read_page(reader, source, &params).await {
            Err(ReadError::TooLarge(_)) => {
                limit = (limit / STEP).max(1);
                continue;
            }
            // The connection is slow. A page as small as the first one came in time.
            Err(ReadError::Timeout(_)) if limit > FIRST_PAGE => {
                (limit, most) = (FIRST_PAGE, FIRST_PAGE);
                continue;
            }
            page => page?,
        };
        all.extend(page.items.into_iter().flatten().filter(&mut keep));
        if page.metadata.next.is_empty() {
            return Ok((all, version(&page.metadata.resource_version)));
        }
        params.continue_token = Some(page.metadata.next);
        limit = next_limit(limit, bytes).min(most);
    }
}

/// Reads a page. Returns it with its size in bytes. If a page after the first cannot be read, it is requested once more.
async fn read_page<T: Watched>(
    reader: &Reader,
    source: &Source,
    params: &ListParams,
) -> Result<(List<T>, usize), ReadError> {
    let request = Request::new(source.path.as_str());
    let page = if source.metadata_only { request.list_metadata(params) } else { request.list(params) };
    let page = page.map_err(kube::Error::BuildRequest)?;
    let again = params.continue_token.is_some().then(|| page.clone());
    // A page of one object cannot shrink, so it has no limit.
    let max_bytes = if params.limit == Some(1) { usize::MAX } else { LARGE };
    match (reader.read(page, max_bytes).await, again) {
        // There may be hundreds of pages, and a failure would begin with the first one again.
        (Err(error), Some(again)) if is_transient(&error) => {
            tokio::time::sleep(PAGE_RETRY).await;
            reader.read(again, max_bytes).await
        }
        (page, _) => page,
    }
}

/// The limit of the next page, after one with this limit and size: as many objects as fill half of the largest page.
pub(super) fn next_limit(limit: u32, bytes: usize) -> u32 {
    let fit = LARGE / 2 * usize::try_from(limit).unwrap_or(usize::MAX) / bytes.max(1);
    u32::try_from(fit).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE.min(limit.saturating_mul(STEP)))
}

/// Whether the same request may succeed a moment later.
fn is_transient(error: &ReadError) -> bool {
    match error {
        ReadError::Api(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        ReadError::Api(kube::Error::SerdeError(_)) | ReadError::TooLarge(_) => false,
        _ => true,
    }
}
