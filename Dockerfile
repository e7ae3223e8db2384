# The guard: one static binary and nothing else. From the top of the tree:
#   docker build --tag gatera:0.1.0 --build-arg GATERA_COMMIT="$(git rev-parse HEAD)" .
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
ARG GATERA_COMMIT
# --target, also for this very machine: without it the flags would reach build scripts and macros, which must stay dynamic.
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
 && RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --bin gatera --target "$target" \
 && install -D "target/$target/release/gatera" /image/gatera

FROM scratch
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/gatera"]
