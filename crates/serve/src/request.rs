//! One request: who asks, what for, whether he may, and the answer.

use crate::body::AnswerBody;
use crate::download;
use crate::limits::{IDLE_TIMEOUT, OBJECT_BYTES_MAX};
use crate::served::{Refused, Served};
use crate::target::{RepositoryName, RequestTarget, allowed_names};
use crate::upload::{self, Upload};
use crate::users::Login;
use bale_repository::store::{Area, LocalStore, ObjectName, Store};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::timeout;

/// In every answer, so that clients know whose areas these are.
const OWN_HEADER: &str = "bale-protocol";

/// Bytes of a refused body that are read: a client that is still sending would not see the answer.
const REFUSED_BODY_BYTES_MAX: u64 = 64 << 20;

/// Answers a request; whatever goes wrong is an answer, too.
pub async fn answer(
    served: Arc<Served>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let (head, mut body) = request.into_parts();
    let mut answer = match route(&served, &head, &mut body).await {
        Ok(answer) => answer,
        Err(refused) => {
            // Who waits for a word before he sends gets this one.
            if !refused.is_unauthorized() && !head.headers.contains_key(header::EXPECT) {
                let _too_slow = timeout(IDLE_TIMEOUT, discard(&mut body)).await;
            }
            refused.answer()
        }
    };
    answer
        .headers_mut()
        .insert(OWN_HEADER, HeaderValue::from_static("1"));
    served.metrics.count(&head.method, answer.status());
    Ok(answer)
}

async fn discard(body: &mut Incoming) {
    let mut left = REFUSED_BODY_BYTES_MAX;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        let len = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        left = left.saturating_sub(len);
    }
}

async fn route(
    served: &Arc<Served>,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Response<AnswerBody>, Refused> {
    let user = login(served, &head.headers).await?;
    let target = RequestTarget::parse(head.uri.path());
    // What begins as an area or an object can be made by nobody.
    let may_be_made = |target: &RequestTarget| matches!(target, RequestTarget::Repository(_));
    let target = target.filter(|target| !is_create(head) || may_be_made(target));
    let target = target.ok_or_else(|| unnamed(head))?;
    if let Some(name) = target.repository()
        && served.is_private
        && (user.is_none() || name.parts().next() != user.as_deref())
    {
        return Err(elsewhere(user.as_deref().unwrap_or_default()));
    }
    match target {
        RequestTarget::Metrics => match head.method {
            Method::GET | Method::HEAD => Ok(metrics(served)),
            _ => Err(wrong_method()),
        },
        RequestTarget::Repository(name) => create(served, head, name).await,
        RequestTarget::Area(name, area) => match head.method {
            Method::GET => {
                let store = find(served, name).await?;
                download::listing(served, store, area).await
            }
            _ => Err(wrong_method()),
        },
        RequestTarget::Object(repository, name) => {
            let store = find(served, repository).await?;
            object(served, head, body, store, name).await
        }
    }
}

/// What names nothing here; whoever wants to make a repository of such a name learns which may be.
fn unnamed(head: &Parts) -> Refused {
    match is_create(head) {
        true => Refused::new(StatusCode::UNPROCESSABLE_ENTITY, allowed_names()),
        false => Refused::new(StatusCode::NOT_FOUND, "not found"),
    }
}

fn is_create(head: &Parts) -> bool {
    head.method == Method::POST && head.uri.query() == Some("create=true")
}

/// Names of users are plain.
fn elsewhere(user: &str) -> Refused {
    let why = format!(
        "{user:?} reaches only /{user}/ here: name the repository /{user}/NAME (this server runs \
         with --private)"
    );
    Refused::new(StatusCode::FORBIDDEN, why)
}

fn wrong_method() -> Refused {
    Refused::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this cannot be done with that",
    )
}

/// The user who asks; nobody where nobody is asked for a password.
async fn login(served: &Arc<Served>, headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(users) = &served.users else {
        return Ok(None);
    };
    let header = headers.get(header::AUTHORIZATION);
    let login = header.and_then(|header| Login::parse(header.to_str().ok()?));
    let is_right = match &login {
        None => false,
        Some(login) if users.remembered(login) => true,
        Some(login) => {
            let _place = served.login_checks.acquire().await;
            let (state, login) = (served.clone(), login.clone());
            blocking(move || {
                state
                    .users
                    .as_ref()
                    .is_some_and(|users| users.check(&login))
            })
            .await?
        }
    };
    match login {
        Some(login) if is_right => Ok(Some(login.user)),
        _ => {
            served
                .metrics
                .refused_logins
                .fetch_add(1, Ordering::Relaxed);
            let why = "no such user with this password";
            Err(Refused::new(StatusCode::UNAUTHORIZED, why))
        }
    }
}

fn metrics(served: &Served) -> Response<AnswerBody> {
    let text = served.metrics.text(&served.quota);
    let mut answer = Response::new(AnswerBody::Whole(text.into()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

async fn create(
    served: &Arc<Served>,
    head: &Parts,
    name: RepositoryName,
) -> Result<Response<AnswerBody>, Refused> {
    if !is_create(head) {
        return Err(wrong_method());
    }
    let (state, wanted) = (served.clone(), name.clone());
    let around = blocking(move || state.repositories.around(&wanted)).await?;
    if let Some(around) = around.map_err(|error| served.failed(&error))? {
        let why = format!(
            "/{}/ is inside of {around}, which is a repository of its own: make this one somewhere \
             else",
            name.as_str()
        );
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    let (state, wanted) = (served.clone(), name.clone());
    let inside = blocking(move || state.repositories.inside(&wanted)).await?;
    if let Some(inside) = inside.map_err(|error| served.failed(&error))? {
        let why = format!(
            "/{} would lie around /{}, which is a repository of its own: make this one somewhere \
             else",
            shown(&[name.as_str()]),
            shown(&[name.as_str(), &inside])
        );
        return Err(Refused::new(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    let state = served.clone();
    let created = blocking(move || state.repositories.create(&name)).await?;
    created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Refused::new(StatusCode::CONFLICT, "there is a repository already")
        }
        _ => served.failed(&error),
    })?;
    Ok(Response::new(AnswerBody::empty()))
}

/// Parts of a path, with a slash behind each.
fn shown(parts: &[&str]) -> String {
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}/")).collect()
}

async fn find(served: &Arc<Served>, name: RepositoryName) -> Result<LocalStore, Refused> {
    let state = served.clone();
    let found = blocking(move || state.repositories.find(&name)).await?;
    found.map_err(|error| served.failed(&error))
}

async fn object(
    served: &Arc<Served>,
    head: &Parts,
    body: &mut Incoming,
    store: LocalStore,
    name: ObjectName,
) -> Result<Response<AnswerBody>, Refused> {
    let state = served.clone();
    match head.method {
        Method::GET => {
            let range = head.headers.get(header::RANGE);
            let range = range
                .and_then(|range| range.to_str().ok())
                .map(str::to_owned);
            blocking(move || download::object(&state, store, name, range.as_deref())).await?
        }
        Method::HEAD => blocking(move || download::head(&state, &store, &name)).await?,
        Method::POST => {
            let Some(len) = body.size_hint().exact() else {
                let why = "an object is sent with its length (Content-Length)";
                return Err(Refused::new(StatusCode::LENGTH_REQUIRED, why));
            };
            if len > OBJECT_BYTES_MAX {
                return Err(Refused::too_long());
            }
            upload::receive(served, Upload { store, name, len }, body).await?;
            Ok(Response::new(AnswerBody::empty()))
        }
        Method::DELETE => {
            // A run removes its records when its snapshot is there; nothing that is committed needs
            // them.
            if served.is_append_only && name.area != Area::Runs {
                let why = "this server only takes what is new (it runs with --append-only)";
                return Err(Refused::new(StatusCode::FORBIDDEN, why));
            }
            blocking(move || delete(&state, &store, &name)).await??;
            Ok(Response::new(AnswerBody::empty()))
        }
        _ => Err(wrong_method()),
    }
}

fn delete(served: &Served, store: &LocalStore, name: &ObjectName) -> Result<(), Refused> {
    let failed = |error| served.failed(&error);
    let len = store.stat(name).map_err(failed)?.map_or(0, |info| info.len);
    store.delete(name).map_err(failed)?;
    served.quota.give_back(len);
    Ok(())
}

/// Work that waits for a disk or a hash, away from the threads that serve connections.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed"))
}
