// Package desk keeps versioned documents: spreadsheets, markdown texts and records, each with one owner, in folders.
//
//	store, err := desk.NewStore(pool)
//	content, err := desk.ParseContent([]byte(`{"cells": {"A1": {"v": "Rent"}, "B1": {"v": 1200.50}}}`))
//	file, err := store.Create(ctx, "ada", desk.NewFile{Name: "Budget", Content: content})
//	…
//	saved, err := store.Save(ctx, "ada", desk.Save{
//		File: file.ID, ID: desk.NewSaveID(), Writer: "tab-1",
//		ExpectedVersion: file.Version, SchemaVersion: desk.SchemaVersion, Content: content,
//	})
//	if conflict := (*desk.ConflictError)(nil); errors.As(err, &conflict) {
//		// Somebody saved in between: nothing was written, and a person decides.
//	}
//
// # What is promised
//
// A save is compare-and-swap. It names the version that it was based on; when that is not the stored one, nothing is
// written and the answer is a *ConflictError with what is stored. There is no last-write-wins for content.
//
// A save has an identity. The caller mints its id and keeps it when it sends the save again. The row of the ledger that
// says which version a save made commits in the statement that writes the content, so a save that was committed and
// whose answer was lost is found and answered with Replayed: it is never applied twice, and never a conflict with
// itself. An id that comes back with another request is ErrSaveIDReused.
//
// A file is its owner's. Every statement names the owner; somebody else's file is not found, exactly as one that does
// not exist.
//
// What was saved is what is read, byte for byte but for the white space between tokens: numbers keep every digit.
//
// Name, folder and the aiContext flag are not versioned: the last writer wins.
//
// # Transactions
//
// Methods that end in Tx use the caller's transaction and never commit it, so that a tool can change a document and
// record that it did so at once. They lock the file until the transaction ends. Under READ COMMITTED, which is
// PostgreSQL's default, a conflict is a returned error and no error of SQL: the transaction goes on. Under REPEATABLE
// READ and SERIALIZABLE a file that was saved meanwhile gives 40001.
//
// # HTTP
//
// NewHandler serves the store to browsers; openapi.yaml describes it.
package desk
