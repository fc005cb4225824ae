//! gRPC calls of the [origins](super): the service of `data/stock.proto`, which server reflection describes, and an echo of every other
//! method. Each message is answered as it arrives.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::{next_message, write_prefix};
use interflow_types::{
    Body, BodyFrame, BodyStream, Error, ErrorKind, Headers, Response, ResponseHead, Result, StatusCode,
};

/// Answers of server reflection: the services, the compiled `data/stock.proto`, and the error NOT_FOUND.
const SERVICES: &[u8] = b"\x32\x0e\n\x0c\n\nshop.Stock";
const STOCK: &[u8] = include_bytes!("../../data/stock.pb");
const NOT_FOUND: &[u8] = b"\x3a\x1c\x08\x05\x12\x18there is only shop.Stock";
/// Goods by ID, from 1.
const GOODS: [&str; 2] = ["Lamp", "Chair"];
/// Maximum size of a message, in bytes.
const MAX_MESSAGE: usize = 4 << 20;

/// Answers a message with messages.
type Method = fn(&[u8]) -> Vec<Vec<u8>>;

/// The response of the method with this path.
pub fn call(path: &str, request: Body) -> Response {
    let method: Method = match path {
        "/shop.Stock/Get" | "/shop.Stock/Follow" => |product| vec![item(product, 0)],
        "/shop.Stock/Watch" => |product| (0..3).map(|sold| item(product, sold)).collect(),
        _ if path.ends_with(".ServerReflection/ServerReflectionInfo") => |asked| vec![reflection(asked).to_vec()],
        _ => |message| vec![message.to_vec()],
    };
    let head = ResponseHead::new(StatusCode::OK).with_header("Content-Type", "application/grpc");
    let replies = Replies { request: Some(request), received: BytesMut::new(), method };
    Response { head, body: Body::stream(replies) }
}

struct Replies {
    /// `None` at its end.
    request: Option<Body>,
    received: BytesMut,
    method: Method,
}

impl BodyStream for Replies {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            let message = next_message(&mut self.received, MAX_MESSAGE)
                .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            if let Some(message) = message {
                return Poll::Ready(Some(Ok(BodyFrame::Data(framed(&(self.method)(&message.data))))));
            }
            let Some(request) = &mut self.request else { return Poll::Ready(None) };
            match ready!(request.poll_frame(cx)).transpose()? {
                Some(BodyFrame::Data(data)) => self.received.extend_from_slice(&data),
                Some(BodyFrame::Trailers(_)) => {}
                None => {
                    self.request = None;
                    let trailers: Headers = [("grpc-status", "0")].into_iter().collect();
                    return Poll::Ready(Some(Ok(BodyFrame::Trailers(trailers))));
                }
            }
        }
    }
}

fn framed(messages: &[Vec<u8>]) -> Bytes {
    let mut out = Vec::new();
    for message in messages {
        write_prefix(&mut out, false, message.len() as u32);
        out.extend_from_slice(message);
    }
    out.into()
}

/// The `Item` of a `Product`; an unknown one has a number and no name.
fn item(product: &[u8], sold: u8) -> Vec<u8> {
    let id = if let [0x08, id, ..] = product { *id & 0x7f } else { 0 };
    let name = usize::from(id).checked_sub(1).and_then(|index| GOODS.get(index)).unwrap_or(&"");
    [&[0x08, id, 0x12, name.len() as u8], name.as_bytes(), &[0x18, 10 - sold]].concat()
}

/// The `ServerReflectionResponse` to a request: for the list of services, or for a file by its name or a symbol in it.
fn reflection(request: &[u8]) -> &'static [u8] {
    match request {
        [0x3a, ..] => SERVICES,
        [0x1a | 0x22, _, name @ ..] if name == b"stock.proto" || name.starts_with(b"shop.") => STOCK,
        _ => NOT_FOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_answered_before_the_request_ends_and_the_status_follows() {
        let (first, second) = (framed(&[vec![8, 1]]), framed(&[vec![8, 2]]));
        let request = Body::replay(vec![Ok(BodyFrame::Data(first)), Ok(BodyFrame::Data(second))], Body::Empty);
        let mut body = call("/shop.Stock/Follow", request).body;
        for (id, name) in [(1, &b"\x12\x04Lamp"[..]), (2, b"\x12\x05Chair")] {
            let item = [&[8, id], name, &[0x18, 10]].concat();
            let Some(Ok(BodyFrame::Data(data))) = body.frame().await else { panic!("no message") };
            assert_eq!(data, framed(&[item]));
        }
        assert!(matches!(body.frame().await, Some(Ok(BodyFrame::Trailers(_)))));
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn reflection_lists_the_service_and_describes_it() {
        for (request, response) in [
            ("\x3a\x01*", SERVICES),
            ("\x22\x0ashop.Stock", STOCK),
            ("\x1a\x0bstock.proto", STOCK),
            ("\x22\x05other", NOT_FOUND),
            ("", NOT_FOUND),
        ] {
            assert_eq!(reflection(request.as_bytes()), response, "{request}");
        }
        // Each is one field, as long as it says.
        for response in [SERVICES, NOT_FOUND] {
            assert_eq!(usize::from(response[1]), response.len() - 2);
        }
    }

    #[test]
    fn the_compiled_schema_is_that_of_the_source() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let mut compiler = protox::Compiler::new([data]).unwrap();
        let compiled = compiler.open_file("stock.proto").unwrap().encode_file_descriptor_set();
        // In the field `file_descriptor_response`.
        let length = [compiled.len() as u8 | 0x80, (compiled.len() >> 7) as u8];
        assert_eq!([&[0x22], &length[..], &compiled].concat(), STOCK);
    }
}
