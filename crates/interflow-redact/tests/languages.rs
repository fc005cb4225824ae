//! Texts in other languages than English: their common words are no names, and names in them are found.

use interflow_redact::{Kind, RedactionSession, Redactor};

fn found(text: &str) -> Vec<(Kind, String)> {
    let spans = Redactor::default().find(text, &RedactionSession::one_way());
    spans.iter().map(|f| (f.kind, text[f.start..f.end].to_owned())).collect()
}

#[track_caller]
fn assert_nothing(texts: &[&str]) {
    for text in texts {
        assert_eq!(found(text), [], "{text:?}");
    }
}

#[track_caller]
fn assert_found(rows: &[(&str, Kind, &str)]) {
    for (text, kind, value) in rows {
        let all = found(text);
        assert!(all.iter().any(|(k, v)| k == kind && v.contains(value)), "{text:?}: {all:?}");
    }
}

#[test]
fn messages_of_programs_in_other_languages_hold_no_names() {
    assert_nothing(&[
        "Fehler beim Lesen der Datei: nicht genug Speicher vorhanden",
        "Weitere Informationen stehen in der Zeile am Ende der Ausgabe",
        "Ungültiger Wert für die Größe des Puffers; die Befehle werden nicht ausgeführt",
        "im Hof steht ein Baum, und die Mauer ist alt",
        "Mit freundlichen Grüßen",
        "Tämä ohjelma ei voi avata tiedostoa, koska muisti ei riitä",
        "Älä käytä tätä valintaa, jos tiedosto on jo olemassa",
        "Yeni dosya oluşturulamadı: bellek yetersiz ve disk dolu",
        "Bu seçenek için geçerli bir değer gerekli; Satır okunamadı",
        "Denna fil kan inte läsas eftersom den inte finns",
        "Ändra namnet på filen innan du fortsätter med nästa steg",
        "Brak pliku: nie można otworzyć katalogu do odczytu",
        "Stan usługi nie jest znany, więc nie można jej zatrzymać",
        "Alleen lezen: het bestand kan niet worden gewijzigd",
        "Toon de regels van het bestand en sluit het venster niet",
        "Usa questa opzione per scrivere il file senza chiedere conferma",
        "Errore durante la lettura della cartella: il file non esiste",
        "Erreur lors de la lecture du fichier : le dossier est introuvable",
        "Afficher les lignes qui ne sont pas dans la liste des paquets",
        "Erro ao abrir o arquivo: a pasta não existe ou não pode ser lida",
        "Elija el archivo que desea abrir y la carpeta para guardarlo",
        "Soubor nelze otevřít, protože adresář neexistuje nebo nemá práva",
        "Ошибка чтения файла: недостаточно памяти для выполнения команды",
    ]);
}

#[test]
fn people_in_other_languages_are_found() {
    use Kind::{Location, Person};
    assert_found(&[
        ("Gestern hat Jürgen Brandt den Vertrag für die neue Wohnung unterschrieben.", Person, "Jürgen Brandt"),
        ("Sehr geehrte Frau Lindemann, vielen Dank für Ihre Nachricht vom Montag.", Person, "Lindemann"),
        ("Wir wohnen seit Jahren in München und arbeiten in der Stadt.", Location, "München"),
        ("Eilen Matti Korhonen allekirjoitti sopimuksen uudesta asunnosta.", Person, "Matti Korhonen"),
        ("Hei Aino, voitko lähettää minulle asiakirjan huomenna?", Person, "Aino"),
        ("Dün Mehmet Yılmaz yeni dairenin sözleşmesini imzaladı.", Person, "Mehmet Yılmaz"),
        ("Merhaba Emre, belgeyi bana yarın gönderebilir misin?", Person, "Emre"),
        ("Igår skrev Sven Lindqvist under avtalet om den nya lägenheten.", Person, "Sven Lindqvist"),
        ("Hej Astrid, kan du skicka dokumentet till mig i morgon?", Person, "Astrid"),
        ("Wczoraj Piotr Kowalski podpisał umowę na nowe mieszkanie.", Person, "Piotr Kowalski"),
        ("Cześć Wojciech, czy możesz wysłać mi dokument jutro?", Person, "Wojciech"),
        ("Gisteren heeft Pieter de Vries het contract voor de nieuwe woning getekend.", Person, "Pieter de Vries"),
        ("Hallo Sanne, kun je mij het document morgen sturen?", Person, "Sanne"),
        ("Ieri Marco Bianchi ha firmato il contratto per il nuovo appartamento.", Person, "Marco Bianchi"),
        ("Ciao Giulia, ti scrivo per sapere se il documento è pronto.", Person, "Giulia"),
        ("Hier, Camille Durand a signé le contrat pour le nouvel appartement.", Person, "Camille Durand"),
        ("Bonjour Amélie, je vous remercie pour votre message.", Person, "Amélie"),
        // Forms and signatures.
        ("Name: Bärbel Schuster\nOrt: Kassel", Person, "Bärbel Schuster"),
        ("Nimi: Jukka Virtanen\nPuhelin: puuttuu", Person, "Jukka Virtanen"),
        ("Naam: Sanne Bakker\nStatus: actief", Person, "Sanne Bakker"),
        ("Vielen Dank für die schnelle Hilfe.\n\nMit freundlichen Grüßen,\nAnneliese", Person, "Anneliese"),
    ]);
}

#[test]
fn numbers_and_words_of_programs_are_no_personal_data() {
    assert_nothing(&[
        "Setting up librtmp1:amd64 (2.4+20151223.gitfa8646d.1-2+b2)",
        "the id is 0x3877713c173f8f2 in this build",
        "return self.dev is not None",
        "if this.dev then build",
        "walk road road and walk",
        "This follows from Bayes' theorem.",
        "Introduced in APT 2.6.1, see the notes.",
        "Vaihda työtilaan 5",
    ]);
}

#[test]
fn names_and_addresses_in_unusual_spellings_are_found() {
    use Kind::{Age, Email, Passport, Password, Person, ZipCode};
    assert_found(&[
        ("Please ask <Dmitri Lindqvist> about it", Person, "Dmitri Lindqvist"),
        ("assigned to <<Dmitri Lindqvist>> today", Person, "Dmitri Lindqvist"),
        ("user dmitri_lindqvist wrote this", Person, "dmitri_lindqvist"),
        ("owner: dmitriLindqvist", Person, "dmitriLindqvist"),
        ("\"I am glad\", said Gladys to Logan.", Person, "Logan"),
        ("Passport no. CVN6XJHJL", Passport, "CVN6XJHJL"),
        ("My father retired at the age of 66", Age, "66"),
        ("It is on the weekend. I'll turn 42.", Age, "42"),
        ("My zip code is 2371", ZipCode, "2371"),
        ("password: #Sommer2024x", Password, "#Sommer2024x"),
        ("password: %s7Kd!q2vv", Password, "%s7Kd!q2vv"),
        ("write to anna.berg (at) nordmail.com today", Email, "anna.berg (at) nordmail.com"),
        ("write to anna.berg [at] nordmail [dot] com today", Email, "anna.berg [at] nordmail [dot] com"),
        ("play anna@firm.com.mp3 now", Email, "anna@firm.com"),
        ("unpack anna.berg@nordmail.com.tar.7z.1", Email, "anna.berg@nordmail.com.tar"),
        ("play anna.berg=40nordmail.com.mp3 now", Email, "anna.berg=40nordmail.com"),
        ("play anna.berg [at] nordmail [dot] com.mp4 now", Email, "anna.berg [at] nordmail [dot] com"),
    ]);
    assert_nothing(&[
        "<Box width={3}>",
        "call parse_header or parseHeader first",
        "password: %s",
        "password: #optional",
        "meet me (at) noon",
        "npm install lodash@4.17.21 react@18.3.0-rc.1 next@canary.7",
    ]);
}
