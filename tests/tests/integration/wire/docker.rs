//! HTTP on Docker's socket: what real programs wrote is read as what it is, and nothing of a query or of a body is taken for more.

use proptest::prelude::*;

use crate::wire_kit::docker::{Read, read, run};

const ID: &str = "8e871609d0f2a1b34c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3";

fn method(write: &str) -> String {
    match read(write.as_bytes()) {
        Read::Request(Some(call)) => call.method,
        other => format!("{other:?}"),
    }
}

/// Requests and answers of dockershim and dockerd 20.10, as they were on the socket.
#[test]
fn as_real_programs_write() {
    let list = "GET /v1.40/containers/json?all=1&filters=%7B%22label%22%3A%7B%22io.kubernetes.docker.type%3Dpodsandbox%22%3Atrue%7D%7D&limit=0 HTTP/1.1\r\nHost: docker\r\nUser-Agent: Go-http-client/1.1\r\n\r\n";
    assert_eq!(method(list), "GET /containers/json");
    let create = "POST /v1.40/containers/create?name=k8s_POD_p4- HTTP/1.1\r\nHost: docker\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(method(create), "POST /containers/create");
    let exec = format!(
        "POST /v1.40/exec/{ID}/start HTTP/1.1\r\nHost: \r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n{{}}"
    );
    assert_eq!(method(&exec), "POST /exec/{id}/start");
    let inspect = format!("GET /v1.40/containers/{ID}/json HTTP/1.1\r\nHost: docker\r\n\r\n");
    let Read::Request(Some(call)) = read(inspect.as_bytes()) else { panic!("a request") };
    assert_eq!((call.method.as_str(), call.container.as_str()), ("GET /containers/{id}/json", ID));
    assert_eq!(read(b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\n"), Read::Status(200, true));
    assert_eq!(read(b"HTTP/1.1 101 UPGRADED\r\n"), Read::Status(101, true));
    assert_eq!(read(b"HTTP/1.1 100 Continue\r\n"), Read::Status(100, false));
    assert_eq!(read(b"9b6\r\n[{\"Id\":\"8e87\""), Read::Other, "a chunk");
    assert_eq!(read(b"\x01\0\0\0\0\0\0\x05hello"), Read::Other, "output of a command");
}

proptest! {
    /// Any bytes, and any bytes behind what begins a message.
    #[test]
    fn any_bytes(begin in "(GET|POST|DELETE|HEAD|PUT) /|HTTP/1\\.[01] |", rest in prop::collection::vec(any::<u8>(), 0..300)) {
        run(&[begin.as_bytes(), &rest].concat());
    }

    /// Whatever a path is made of, its words become one of few.
    #[test]
    fn any_path(parts in prop::collection::vec("containers|exec|images|json|v1\\.40|[a-f0-9]{12,64}|[A-Za-z0-9%:._-]{0,30}", 0..8)) {
        run(format!("GET /{} HTTP/1.1\r\n", parts.join("/")).as_bytes());
    }
}
