# The manager, for those who build with a container engine; `make image` does without one.
# docker build --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse HEAD) .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS=linux TARGETARCH VERSION=unknown COMMIT=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY config config
COPY internal internal
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /manager ./cmd/manager

FROM scratch
ARG VERSION=unknown COMMIT=unknown
LABEL org.opencontainers.image.title=flotilla-manager org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT org.opencontainers.image.source=https://github.com/flotilla-dev/flotilla \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
