# One image for all commands: worker (run, migrate, demo needs PostgreSQL's programs and is not for this image) and ui.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/ ./cmd/worker ./cmd/ui

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/worker /out/ui /usr/local/bin/
USER nonroot
ENTRYPOINT ["/usr/local/bin/worker"]
CMD ["run"]
