//! Builds the requests of controllers, except watches and lists. It sends none. Each function fails if the key does not form a valid path, or
//! the body cannot be encoded.

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::{Resource, api::Preconditions, core::request};
use serde::Serialize;
use serde_json::{Value, json};

use super::ObjectKey;
use crate::OPERATOR;

/// A request, or the error from building it.
pub type BuildResult = Result<Request<Vec<u8>>, request::Error>;

/// Requests an answer with the metadata alone. Errors come as a normal Status.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

fn object<K: Resource<DynamicType = ()>>(key: &ObjectKey) -> String {
    format!("{}/{}", K::url_path(&(), Some(&key.namespace)), key.name)
}

fn with_body(builder: http::request::Builder, content_type: &str, body: &impl Serialize) -> BuildResult {
    let body = serde_json::to_vec(body).map_err(request::Error::SerializeBody)?;
    builder.header(CONTENT_TYPE, content_type).body(body).map_err(request::Error::BuildRequest)
}

/// Reads an object, consistently.
pub fn get<K: Resource<DynamicType = ()>>(key: &ObjectKey) -> BuildResult {
    Request::get(object::<K>(key)).body(Vec::new()).map_err(request::Error::BuildRequest)
}

/// Creates an object. The API server rejects unknown fields instead of dropping them. It answers with the metadata alone.
pub fn create<K: Resource<DynamicType = ()>>(namespace: &str, manifest: &impl Serialize) -> BuildResult {
    post::<K>(namespace, manifest, "")
}

/// Asks whether an object would be created, and creates none.
pub fn dry_run<K: Resource<DynamicType = ()>>(namespace: &str, manifest: &impl Serialize) -> BuildResult {
    post::<K>(namespace, manifest, "&dryRun=All")
}

fn post<K: Resource<DynamicType = ()>>(namespace: &str, manifest: &impl Serialize, option: &str) -> BuildResult {
    let path = K::url_path(&(), Some(namespace));
    let request = Request::post(format!("{path}?fieldManager={OPERATOR}&fieldValidation=Strict{option}"));
    with_body(request.header(ACCEPT, METADATA), "application/json", manifest)
}

/// Deletes the object of this name, if it has this UID and this resourceVersion.
pub fn delete<K: Resource<DynamicType = ()>>(key: &ObjectKey, uid: Option<&str>, version: Option<u64>) -> BuildResult {
    let (uid, resource_version) = (uid.map(str::to_owned), version.map(|version| version.to_string()));
    let preconditions = Preconditions { uid, resource_version };
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
    with_body(Request::delete(object::<K>(key)), "application/json", &options)
}

/// Changes an object by a merge patch.
pub fn merge<K: Resource<DynamicType = ()>>(key: &ObjectKey, patch: &Value) -> BuildResult {
    let request = Request::patch(format!("{}?fieldManager={OPERATOR}", object::<K>(key)));
    with_body(request, "application/merge-patch+json", patch)
}

/// Applies the status of a custom resource if it has this resourceVersion (`None`: any). The UID is not enough: the API server ignores it in
/// a status apply, and would write to a recreated object of the same name.
pub fn apply_status<K: Resource<DynamicType = ()>>(
    key: &ObjectKey,
    uid: &str,
    version: Option<u64>,
    status: &impl Serialize,
) -> BuildResult {
    let request = Request::patch(format!("{}/status?fieldManager={OPERATOR}&force=true", object::<K>(key)));
    let version = version.map(|version| version.to_string());
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": key.name, "namespace": key.namespace, "uid": uid, "resourceVersion": version },
        "status": serde_json::to_value(status).map_err(request::Error::SerializeBody)?,
    });
    with_body(request, "application/apply-patch+yaml", &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Pod;

    fn line(request: &Request<Vec<u8>>) -> String {
        format!("{} {} {}", request.method(), request.uri(), String::from_utf8_lossy(request.body()))
    }

    #[test]
    fn requests_are_as_expected() {
        let key = ObjectKey::new("ns", "web");
        let created = create::<Pod>("ns", &json!({})).unwrap();
        let accepted = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(created.headers()[ACCEPT], accepted);
        assert_eq!(line(&get::<Deployment>(&key).unwrap()), "GET /apis/apps/v1/namespaces/ns/deployments/web ");
        assert_eq!(
            line(&create::<Pod>("ns", &json!({})).unwrap()),
            "POST /api/v1/namespaces/ns/pods?fieldManager=podset-operator&fieldValidation=Strict {}"
        );
        assert_eq!(
            line(&delete::<Pod>(&key, Some("u"), None).unwrap()),
            r#"DELETE /api/v1/namespaces/ns/pods/web {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"}}"#
        );
        assert_eq!(
            line(&apply_status::<Deployment>(&key, "u", Some(7), &json!({})).unwrap()),
            "PATCH /apis/apps/v1/namespaces/ns/deployments/web/status?fieldManager=podset-operator&force=true \
             {\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"web\",\
             \"namespace\":\"ns\",\"resourceVersion\":\"7\",\"uid\":\"u\"},\"status\":{}}"
        );
    }
}
